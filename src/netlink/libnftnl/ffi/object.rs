//! The objects and their attributes.

use std::ffi::{CStr, CString, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;

use nftnl::nftnl_sys as sys;

/// What the library keeps of a key or value; it does not check.
const DATA_MAX: usize = 64;
/// `NFT_NAME_MAXLEN`, with the NUL.
const NAME_MAX: usize = 256;

macro_rules! attribute {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        pub struct $name<O>(pub(super) u16, pub(super) PhantomData<fn(O)>);

        impl<O> Clone for $name<O> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<O> Copy for $name<O> {}

        impl<O> $name<O> {
            pub(super) const fn new(attr: u32) -> $name<O> {
                $name(attr as u16, PhantomData)
            }
        }
    )*};
}

attribute! {
    /// An attribute of an `O` that is a number of 8 bits.
    U8,
    /// An attribute of an `O` that is a number of 32 bits.
    U32,
    /// An attribute of an `O` that is a number of 64 bits.
    U64,
    /// An attribute of an `O` that is text.
    Text
}

/// An attribute of an `O` that is bytes.
pub struct Blob<O> {
    attr: u16,
    max: usize,
    object: PhantomData<fn(O)>,
}

impl<O> Clone for Blob<O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O> Copy for Blob<O> {}

impl<O> Blob<O> {
    /// A key or value.
    pub(super) const fn data(attr: u32) -> Blob<O> {
        Blob::at_most(attr, DATA_MAX)
    }

    /// Bytes that the library makes room for.
    pub(super) const fn any(attr: u32) -> Blob<O> {
        Blob::at_most(attr, 1 << 15)
    }

    pub(super) const fn at_most(attr: u32, max: usize) -> Blob<O> {
        Blob { attr: attr as u16, max, object: PhantomData }
    }
}

/// What every object can do.
///
/// # Safety
/// The three functions pass their arguments on to libnftnl's functions of the same purpose, for an object that lives as
/// long as `self`.
pub unsafe trait Object: Sized {
    /// `nftnl_…_set_data`.
    ///
    /// # Safety
    /// `data` points to `length` bytes of what the attribute is kept as.
    unsafe fn set_raw(&mut self, attr: u16, data: *const c_void, length: u32) -> c_int;
    /// `nftnl_…_get_data`.
    fn get_raw(&self, attr: u16, length: &mut u32) -> *const c_void;
    /// `nftnl_…_is_set`.
    fn is_set(&self, attr: u16) -> bool;

    /// Sets a number.
    fn u8(&mut self, attr: U8<Self>, value: u8) -> &mut Self {
        self.put(attr.0, &[value])
    }

    /// Sets a number.
    fn u32(&mut self, attr: U32<Self>, value: u32) -> &mut Self {
        self.put(attr.0, &value.to_ne_bytes())
    }

    /// Sets a number.
    fn u64(&mut self, attr: U64<Self>, value: u64) -> &mut Self {
        self.put(attr.0, &value.to_ne_bytes())
    }

    /// Sets text; refuses what is no name.
    fn text(&mut self, attr: Text<Self>, value: &str) -> Result<&mut Self, String> {
        let text = CString::new(value).map_err(|_| format!("{value:?} has a NUL in it"))?;
        let bytes = text.as_bytes_with_nul();
        if bytes.len() > NAME_MAX {
            return Err(format!("{value:?} is longer than {} bytes", NAME_MAX - 1));
        }
        Ok(self.put(attr.0, bytes))
    }

    /// Sets bytes; refuses more than the library has room for.
    fn blob(&mut self, attr: Blob<Self>, value: &[u8]) -> Result<&mut Self, String> {
        if value.len() > attr.max {
            return Err(format!("{} bytes where libnftnl has room for {}", value.len(), attr.max));
        }
        Ok(self.put(attr.attr, value))
    }

    /// Sets the bytes of an attribute of the right type.
    #[doc(hidden)]
    fn put(&mut self, attr: u16, value: &[u8]) -> &mut Self {
        // SAFETY: the pointer and length are those of `value`. The setters above are the only callers: they give numbers
        // of the width that the attribute is kept in, text with its NUL, or bytes that fit.
        let result = unsafe { self.set_raw(attr, value.as_ptr().cast(), value.len() as u32) };
        if result < 0 { out_of_memory() } else { self }
    }

    /// The number, if it is set.
    fn get_u8(&self, attr: U8<Self>) -> Option<u8> {
        self.fixed(attr.0).map(u8::from_ne_bytes)
    }

    /// The number, if it is set.
    fn get_u32(&self, attr: U32<Self>) -> Option<u32> {
        self.fixed(attr.0).map(u32::from_ne_bytes)
    }

    /// The number, if it is set.
    fn get_u64(&self, attr: U64<Self>) -> Option<u64> {
        self.fixed(attr.0).map(u64::from_ne_bytes)
    }

    /// The text, if it is set.
    fn get_text(&self, attr: Text<Self>) -> Option<String> {
        if !self.is_set(attr.0) {
            return None;
        }
        let text = NonNull::new(self.get_raw(attr.0, &mut 0).cast_mut())?;
        // SAFETY: the library keeps text attributes with their NUL, for as long as the object lives unchanged.
        let text = unsafe { CStr::from_ptr(text.as_ptr().cast()) };
        Some(text.to_string_lossy().into_owned())
    }

    /// The bytes, if they are set.
    fn get_blob(&self, attr: Blob<Self>) -> Option<&[u8]> {
        self.bytes(attr.attr)
    }

    #[doc(hidden)]
    fn fixed<const N: usize>(&self, attr: u16) -> Option<[u8; N]> {
        self.bytes(attr)?.try_into().ok()
    }

    #[doc(hidden)]
    fn bytes(&self, attr: u16) -> Option<&[u8]> {
        if !self.is_set(attr) {
            return None;
        }
        let mut length = 0;
        let data = NonNull::new(self.get_raw(attr, &mut length).cast_mut())?;
        // SAFETY: the library says where the value is and how long, and leaves it there while the object lives unchanged,
        // which the borrow of `self` sees to.
        Some(unsafe { std::slice::from_raw_parts(data.as_ptr().cast(), length as usize) })
    }
}

fn out_of_memory() -> ! {
    std::alloc::handle_alloc_error(std::alloc::Layout::new::<[u8; NAME_MAX]>())
}

macro_rules! object {
    ($(#[$doc:meta])* $name:ident($raw:ident), $alloc:ident, $free:ident, $set:ident, $get:ident, $is_set:ident) => {
        $(#[$doc])*
        pub struct $name(pub(super) NonNull<sys::$raw>);

        impl $name {
            /// An empty one.
            pub fn new() -> $name {
                // SAFETY: takes nothing; gives a new object that is ours.
                $name(NonNull::new(unsafe { sys::$alloc() }).unwrap_or_else(|| out_of_memory()))
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // SAFETY: the object is ours and is not used any more.
                unsafe { sys::$free(self.0.as_ptr()) }
            }
        }

        // SAFETY: each passes on.
        unsafe impl Object for $name {
            unsafe fn set_raw(&mut self, attr: u16, data: *const c_void, length: u32) -> c_int {
                // SAFETY: the object is alive; the caller answers for `data`.
                unsafe { sys::$set(self.0.as_ptr(), attr, data, length) }
            }

            fn get_raw(&self, attr: u16, length: &mut u32) -> *const c_void {
                // SAFETY: the object is alive, `length` is a number that may be written.
                unsafe { sys::$get(self.0.as_ptr(), attr, length) }
            }

            fn is_set(&self, attr: u16) -> bool {
                // SAFETY: the object is alive.
                unsafe { sys::$is_set(self.0.as_ptr(), attr) }
            }
        }
    };
}

object! {
    /// A table.
    Table(nftnl_table), nftnl_table_alloc, nftnl_table_free, nftnl_table_set_data, nftnl_table_get_data,
    nftnl_table_is_set
}
object! {
    /// A chain.
    Chain(nftnl_chain), nftnl_chain_alloc, nftnl_chain_free, nftnl_chain_set_data, nftnl_chain_get_data,
    nftnl_chain_is_set
}
object! {
    /// A rule with its expressions.
    Rule(nftnl_rule), nftnl_rule_alloc, nftnl_rule_free, nftnl_rule_set_data, nftnl_rule_get_data, nftnl_rule_is_set
}
object! {
    /// A set with its elements.
    Set(nftnl_set), nftnl_set_alloc, nftnl_set_free, nftnl_set_set_data, nftnl_set_get_data, nftnl_set_is_set
}
object! {
    /// An element.
    Element(nftnl_set_elem), nftnl_set_elem_alloc, nftnl_set_elem_free, nftnl_set_elem_set, nftnl_set_elem_get,
    nftnl_set_elem_is_set
}

/// A kind of expression.
pub trait Kind {
    /// Its name.
    const NAME: &CStr;
}

/// An expression of one kind.
pub struct Expr<K>(NonNull<sys::nftnl_expr>, PhantomData<K>);

impl<K: Kind> Expr<K> {
    /// An empty one.
    pub fn new() -> Expr<K> {
        // SAFETY: the name is a C string; gives a new object that is ours. The library knows all kinds that are named.
        let expr = unsafe { sys::nftnl_expr_alloc(K::NAME.as_ptr()) };
        Expr(NonNull::new(expr).unwrap_or_else(|| out_of_memory()), PhantomData)
    }

    /// Of whatever kind.
    pub fn any(self) -> OwnedExpr {
        let expr = self.0;
        std::mem::forget(self);
        OwnedExpr(expr)
    }
}

impl Expr<super::Dynset> {
    /// Whether the elements that it adds get statements of their own.
    pub fn is_stateful(&self) -> bool {
        [sys::NFTNL_EXPR_DYNSET_EXPR, sys::NFTNL_EXPR_DYNSET_EXPRESSIONS].iter().any(|attr| self.is_set(*attr as u16))
    }
}

impl<K> Drop for Expr<K> {
    fn drop(&mut self) {
        // SAFETY: the object is ours and is not used any more.
        unsafe { sys::nftnl_expr_free(self.0.as_ptr()) }
    }
}

// SAFETY: each passes on. The attributes of one kind cannot be used with another.
unsafe impl<K: Kind> Object for Expr<K> {
    unsafe fn set_raw(&mut self, attr: u16, data: *const c_void, length: u32) -> c_int {
        // SAFETY: the object is alive; the caller answers for `data`.
        unsafe { sys::nftnl_expr_set(self.0.as_ptr(), attr, data, length) }
    }

    fn get_raw(&self, attr: u16, length: &mut u32) -> *const c_void {
        // SAFETY: the object is alive, `length` is a number that may be written.
        unsafe { sys::nftnl_expr_get(self.0.as_ptr(), attr, length) }
    }

    fn is_set(&self, attr: u16) -> bool {
        // SAFETY: the object is alive.
        unsafe { sys::nftnl_expr_is_set(self.0.as_ptr(), attr) }
    }
}

/// An expression of any kind that has no other owner yet.
pub struct OwnedExpr(NonNull<sys::nftnl_expr>);

impl OwnedExpr {
    /// Leaves it to its new owner.
    fn release(self) -> *mut sys::nftnl_expr {
        let expr = self.0.as_ptr();
        std::mem::forget(self);
        expr
    }
}

impl Drop for OwnedExpr {
    fn drop(&mut self) {
        // SAFETY: the object is ours and is not used any more.
        unsafe { sys::nftnl_expr_free(self.0.as_ptr()) }
    }
}

/// An expression of any kind that belongs to another object.
#[derive(Clone, Copy)]
pub struct AnyExpr<'a> {
    pub(super) expr: NonNull<sys::nftnl_expr>,
    owner: PhantomData<&'a ()>,
}

impl<'a> AnyExpr<'a> {
    fn borrowed(expr: NonNull<sys::nftnl_expr>) -> AnyExpr<'a> {
        AnyExpr { expr, owner: PhantomData }
    }

    /// Its kind's name.
    pub fn name(&self) -> &'a CStr {
        // SAFETY: the object is alive; every expression has a name, which the library keeps for good.
        unsafe { CStr::from_ptr(sys::nftnl_expr_get_str(self.expr.as_ptr(), sys::NFTNL_EXPR_NAME as u16)) }
    }

    /// Reads it as one of the kind `K`, if it is.
    pub fn with<K: Kind, T>(&self, read: impl FnOnce(&Expr<K>) -> Option<T>) -> Option<T> {
        if self.name() != K::NAME {
            return None;
        }
        read(&std::mem::ManuallyDrop::new(Expr(self.expr, PhantomData)))
    }
}

impl Rule {
    /// Appends an expression.
    pub fn add(&mut self, expr: OwnedExpr) {
        // SAFETY: both are alive; the rule owns the expression from now on.
        unsafe { sys::nftnl_rule_add_expr(self.0.as_ptr(), expr.release()) }
    }

    /// Its expressions, in order.
    pub fn exprs(&self) -> Vec<AnyExpr<'_>> {
        // SAFETY: the rule is alive and does not change while it is walked; the walk is ended by its own function.
        unsafe {
            let walk = sys::nftnl_expr_iter_create(self.0.as_ptr());
            if walk.is_null() {
                out_of_memory();
            }
            let next = || NonNull::new(sys::nftnl_expr_iter_next(walk));
            let exprs = std::iter::from_fn(next).map(AnyExpr::borrowed).collect();
            sys::nftnl_expr_iter_destroy(walk);
            exprs
        }
    }
}

/// Collects what the library's `foreach` functions call it with.
unsafe extern "C" fn collect(expr: *mut sys::nftnl_expr, list: *mut c_void) -> c_int {
    // SAFETY: `list` is what the callers below pass, a vector that nobody else uses during the call.
    let list = unsafe { &mut *list.cast::<Vec<*mut sys::nftnl_expr>>() };
    list.push(expr);
    0
}

fn borrowed<'a>(list: Vec<*mut sys::nftnl_expr>) -> Vec<AnyExpr<'a>> {
    list.into_iter().filter_map(NonNull::new).map(AnyExpr::borrowed).collect()
}

impl Set {
    /// Appends an element.
    pub fn add(&mut self, element: Element) {
        // SAFETY: both are alive; the set owns the element from now on.
        unsafe { sys::nftnl_set_elem_add(self.0.as_ptr(), element.0.as_ptr()) }
        std::mem::forget(element);
    }

    /// Appends a statement that every element gets.
    pub fn add_expr(&mut self, expr: OwnedExpr) {
        // SAFETY: both are alive; the set owns the expression from now on.
        unsafe { sys::nftnl_set_add_expr(self.0.as_ptr(), expr.release()) }
    }

    /// The statements that every element gets.
    pub fn exprs(&self) -> Vec<AnyExpr<'_>> {
        let mut list: Vec<*mut sys::nftnl_expr> = Vec::new();
        // SAFETY: the set is alive and does not change during the call, for which `list` lives.
        unsafe { sys::nftnl_set_expr_foreach(self.0.as_ptr(), Some(collect), (&raw mut list).cast()) };
        borrowed(list)
    }

    /// Calls `each` with every element.
    pub fn for_each(&self, mut each: impl FnMut(&Element)) {
        // SAFETY: the set is alive and does not change while it is walked; elements stay the set's; the walk is ended by
        // its own function.
        unsafe {
            let walk = sys::nftnl_set_elems_iter_create(self.0.as_ptr());
            if walk.is_null() {
                out_of_memory();
            }
            while let Some(element) = NonNull::new(sys::nftnl_set_elems_iter_next(walk)) {
                each(&std::mem::ManuallyDrop::new(Element(element)));
            }
            sys::nftnl_set_elems_iter_destroy(walk);
        }
    }
}

impl Element {
    /// Appends a statement.
    pub fn add_expr(&mut self, expr: OwnedExpr) {
        // SAFETY: both are alive; the element owns the expression from now on.
        unsafe { sys::nftnl_set_elem_add_expr(self.0.as_ptr(), expr.release()) }
    }

    /// The element's statements.
    pub fn exprs(&self) -> Vec<AnyExpr<'_>> {
        let mut list: Vec<*mut sys::nftnl_expr> = Vec::new();
        // SAFETY: the element is alive and does not change during the call, for which `list` lives.
        unsafe { sys::nftnl_set_elem_expr_foreach(self.0.as_ptr(), Some(collect), (&raw mut list).cast()) };
        borrowed(list)
    }
}
