/*!
In which order the code of a kernel shall lie, so that it touches as few pages as there can be.

The steps: [`Kernel::read`](kernel::Kernel::read) splits the code of a linked kernel into regions ([`regions`]).
[`HotCode`](hot::HotCode) finds the functions of a coverage there. An algorithm orders the functions of each region
([`algorithm`]). The order is written to a plan, or to a file for a linker ([`format`](mod@format)). [`pages`] counts
what a layout touches.

The key decision is that an order lists hot code and nothing else. The number of touched pages depends on keeping hot
code together, and hardly on its order: only long cold parts of hot functions, the borders of the regions and the last
page leave a choice. An order within the hot code serves when pages are touched, and the caches.
*/

pub mod algorithm;
pub mod calls;
pub mod format;
pub mod hot;
pub mod kernel;
pub mod map;
pub mod pages;
pub mod regions;
