/*!
In which order the code of a kernel shall lie, so that it touches as few pages as there can be.

The steps: [`Kernel::read`](kernel::Kernel::read) cuts the code of a linked kernel into regions
([`regions`]); [`HotCode`](hot::HotCode) finds the functions of a coverage there; an algorithm orders those of
each region ([`algorithm`]); and the order goes into a plan, or into a file for a linker ([`format`](mod@format)).
[`pages`] counts what a layout touches.

The key decision is that an order lists hot code and nothing else. To touch few pages it matters that hot code
lies together, and hardly how it is ordered: only long cold parts of hot functions, the borders of the regions
and the last page leave a choice. An order within the hot code serves when pages are touched, and the caches.
*/

pub mod algorithm;
pub mod calls;
pub mod format;
pub mod hot;
pub mod kernel;
pub mod map;
pub mod pages;
pub mod regions;
