/*!
Ordering the code of a kernel so that it touches as few pages as possible.

The steps: [`Kernel::read`](kernel::Kernel::read) splits the code of a linked kernel into regions ([`regions`]).
[`HotCode`](hot::HotCode) finds the functions of a coverage there. An algorithm orders the functions of each region
([`algorithm`]). The order is written to a plan, or to a file for a linker ([`format`](mod@format)). [`pages`] counts
the pages that a layout touches.

The key decision is that an order lists only hot code. The number of touched pages depends on keeping hot code
together, and hardly on its order: the only choices are long cold parts of hot functions, the borders of the regions
and the last page. The order within the hot code determines when pages are touched, and affects the caches.
*/

pub mod algorithm;
pub mod calls;
pub mod format;
pub mod hot;
pub mod kernel;
pub mod map;
pub mod pages;
pub mod regions;
