//! Which Service ports a change of the objects touches.
