//! Pure rules over plain data: which endpoints, which verdict, whose source address.
