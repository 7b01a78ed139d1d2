//! stub
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let t = std::time::Instant::now();
    let scan = syscall_scan::scan(&bytes).unwrap();
    eprintln!("{:?}", t.elapsed());
    let mut nrs = std::collections::BTreeSet::new();
    for site in &scan.sites {
        match &site.numbers {
            Ok(n) => {
                nrs.extend(n.iter().copied());
                if std::env::var_os("SITES").is_some() {
                    println!(
                        "{} {} {:?} {:?}",
                        site.address,
                        site.function.as_deref().unwrap_or("-"),
                        site.abi,
                        n.iter()
                            .map(|&n| syscall_scan::abi::name(site.abi, n as u32).unwrap_or("?").to_owned())
                            .collect::<Vec<_>>()
                    );
                }
            }
            Err(r) => println!(
                "{} {} {:?} UNRESOLVED {r}",
                site.address,
                site.function.as_deref().unwrap_or("-"),
                site.abi
            ),
        }
    }
    for l in &scan.lost_jumps {
        println!("LOST {} {}", l.address, l.function.as_deref().unwrap_or("-"));
    }
    println!(
        "{} sites, {} calls, {} insns, {} lost",
        scan.sites.len(),
        nrs.len(),
        scan.instructions,
        scan.lost_jumps.len()
    );
    println!(
        "{:?}",
        nrs.iter()
            .map(|&n| syscall_scan::abi::name(scan.abi, n as u32).unwrap_or("?").to_owned())
            .collect::<Vec<_>>()
    );
}
