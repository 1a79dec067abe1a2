//! Netlink attributes: a 16 bit length (of header and value), a 16 bit type, the value, and padding to 4 bytes.
//! Attributes nest. nf_tables numbers are in network byte order.

/// Length of an attribute's header.
pub const HEADER: usize = 4;
/// The longest attribute, header included: its length is a 16 bit number. The kernel takes a longer one for a shorter
/// one without complaint.
pub const MAX: usize = u16::MAX as usize;
const NESTED: u16 = 0x8000;
const TYPE_MASK: u16 = 0x3fff;

/// The length that an attribute with a value of so many bytes takes.
pub const fn padded(value: usize) -> usize {
    (HEADER + value + 3) & !3
}

/// Appends attributes to a buffer.
#[derive(Debug, Default)]
pub struct Writer {
    /// All that was written.
    pub bytes: Vec<u8>,
    too_long: bool,
}

impl Writer {
    /// Whether an attribute became longer than [`MAX`] since this was last asked. What was written then is not to be
    /// sent.
    pub fn take_too_long(&mut self) -> bool {
        std::mem::take(&mut self.too_long)
    }

    /// An attribute with plain bytes.
    #[inline]
    pub fn put(&mut self, kind: u16, value: &[u8]) {
        self.put_all(kind, [value]);
    }

    /// An attribute with plain bytes that come in parts.
    #[inline]
    pub fn put_all<const N: usize>(&mut self, kind: u16, parts: [&[u8]; N]) {
        let length = parts.iter().map(|part| part.len()).sum();
        self.header(kind, HEADER + length);
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.pad(length);
    }

    /// A number of 8 bits.
    pub fn u8(&mut self, kind: u16, value: u8) {
        self.put(kind, &[value]);
    }

    /// A number of 16 bits, in network byte order.
    pub fn u16(&mut self, kind: u16, value: u16) {
        self.put(kind, &value.to_be_bytes());
    }

    /// A number of 32 bits, in network byte order.
    #[inline]
    pub fn u32(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_be_bytes());
    }

    /// A number of 64 bits, in network byte order.
    pub fn u64(&mut self, kind: u16, value: u64) {
        self.put(kind, &value.to_be_bytes());
    }

    /// Text, with the NUL that ends it.
    #[inline]
    pub fn text(&mut self, kind: u16, value: &str) {
        self.put_all(kind, [value.as_bytes(), &[0]]);
    }

    /// An attribute that holds the attributes that `inside` writes.
    #[inline]
    pub fn nest(&mut self, kind: u16, inside: impl FnOnce(&mut Writer)) {
        let start = self.open(kind);
        inside(self);
        self.close(start);
    }

    /// Starts a nest; for [`Writer::close`].
    #[inline]
    pub fn open(&mut self, kind: u16) -> usize {
        let start = self.bytes.len();
        self.header(kind | NESTED, HEADER);
        start
    }

    /// Ends the nest that [`Writer::open`] started at `start`.
    #[inline]
    pub fn close(&mut self, start: usize) {
        let length = self.bytes.len() - start;
        let short = self.short(length);
        self.bytes[start..start + 2].copy_from_slice(&short.to_ne_bytes());
        self.pad(length);
    }

    #[inline]
    fn header(&mut self, kind: u16, length: usize) {
        let [a, b] = self.short(length).to_ne_bytes();
        let [c, d] = kind.to_ne_bytes();
        self.bytes.extend_from_slice(&[a, b, c, d]);
    }

    #[inline]
    fn short(&mut self, length: usize) -> u16 {
        u16::try_from(length).unwrap_or_else(|_| {
            self.too_long = true;
            0
        })
    }

    #[inline]
    fn pad(&mut self, value: usize) {
        self.bytes.extend_from_slice(&[0; 3][..value.wrapping_neg() & 3]);
    }
}

/// One attribute as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr<'a> {
    /// Its type, without the flag bits.
    pub kind: u16,
    /// Its value.
    pub value: &'a [u8],
}

impl<'a> Attr<'a> {
    /// A number of 16 bits in network byte order; nothing when the value is of another length.
    pub fn u16(self) -> Option<u16> {
        self.value.try_into().ok().map(u16::from_be_bytes)
    }

    /// A number of 32 bits in network byte order; nothing when the value is of another length.
    pub fn u32(self) -> Option<u32> {
        self.value.try_into().ok().map(u32::from_be_bytes)
    }

    /// A number of 64 bits in network byte order; nothing when the value is of another length.
    pub fn u64(self) -> Option<u64> {
        self.value.try_into().ok().map(u64::from_be_bytes)
    }

    /// Text up to its NUL. Bytes that are no UTF-8 become replacement characters.
    pub fn text(self) -> std::borrow::Cow<'a, str> {
        let end = self.value.iter().position(|byte| *byte == 0).unwrap_or(self.value.len());
        String::from_utf8_lossy(&self.value[..end])
    }

    /// The attributes inside.
    pub fn attrs(self) -> Reader<'a> {
        Reader::new(self.value)
    }
}

/// Walks attributes. It ends at the first one that claims to reach beyond the bytes: what is broken is not guessed at.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Over the attributes in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The first attribute of that type.
    pub fn find(mut self, kind: u16) -> Option<Attr<'a>> {
        Iterator::find(&mut self, |attr| attr.kind == kind)
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Attr<'a>;

    #[inline]
    fn next(&mut self) -> Option<Attr<'a>> {
        let [a, b, c, d, ..] = *self.rest else { return None };
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = self.rest.get(HEADER..length)?;
        self.rest = self.rest.get(padded(value.len())..).unwrap_or_default();
        Some(Attr { kind: u16::from_ne_bytes([c, d]) & TYPE_MASK, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut writer = Writer::default();
        writer.u32(1, 0x0102_0304);
        writer.text(2, "ab");
        writer.nest(3, |w| {
            w.u8(4, 5);
            w.u64(5, 6);
        });
        let attrs: Vec<Attr> = Reader::new(&writer.bytes).collect();
        assert_eq!(attrs.len(), 3);
        assert_eq!(attrs[0].u32(), Some(0x0102_0304));
        assert_eq!(attrs[1].text(), "ab");
        let inner: Vec<Attr> = attrs[2].attrs().collect();
        assert_eq!(inner[0], Attr { kind: 4, value: &[5] });
        assert_eq!(inner[1].u64(), Some(6));
        assert_eq!(writer.bytes.len() % 4, 0);
        assert!(!writer.take_too_long());
    }

    #[test]
    fn a_nest_over_64_kib_is_noticed() {
        let mut writer = Writer::default();
        writer.nest(1, |w| {
            w.put(1, &[0; 40_000]);
            w.put(1, &[0; 30_000]);
        });
        assert!(writer.take_too_long());
        assert!(!writer.take_too_long(), "asked once, told once");
    }

    #[test]
    fn broken_attributes_end_the_walk() {
        for bytes in [&[3, 0, 1, 0][..], &[9, 0, 1, 0, 1, 2, 3, 4], &[0; 8], &[4, 0], &[0xff; 16]] {
            assert_eq!(Reader::new(bytes).count(), 0, "{bytes:?}");
        }
        // The last attribute may come without its padding.
        assert_eq!(Reader::new(&[5, 0, 1, 0, 7]).next(), Some(Attr { kind: 1, value: &[7] }));
    }
}
