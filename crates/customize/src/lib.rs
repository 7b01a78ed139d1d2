//! Facts for the paths that `kshrink-spec --specialize` copies, from the values that a running kernel has.
//!
//! The method follows Bhatia, Consel, Le Meur and Pu, *Remote Customization of Systems Code for Embedded Devices* (2004),
//! below *the paper*. A declaration names a function and the objects that it uses (section 2.1). Their contents are known when
//! the function runs.
//!
//! 1. [`layout`] finds the members of the declared objects in debugging information;
//! 2. [`script`] writes the commands by which gdb prints the objects at each call of the function;
//! 3. [`calls`] reads the output of gdb;
//! 4. [`observe`](mod@observe) makes a fact of each member that had one value in all calls;
//! 5. [`compare`](mod@compare) writes the commands by which gdb watches whether stable facts last;
//! 6. [`serve`] copies the path for the values of one socket of a device, which loads the code.

pub mod calls;
pub mod compare;
pub mod error;
pub mod layout;
pub mod observe;
pub mod script;
pub mod serve;
pub mod symbols;
