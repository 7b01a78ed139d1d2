//! The functions of glibc's name services.

use std::sync::LazyLock;

use rustc_hash::FxHashSet;

use crate::image::Loaded;

/// The functions of services (glibc's `nss/function.def`).
pub(super) static SERVICE_FUNCTIONS: LazyLock<FxHashSet<&str>> = LazyLock::new(|| {
    "endaliasent endetherent endgrent endhostent endnetent endnetgrent endprotoent endpwent endrpcent \
     endservent endsgent endspent getaliasbyname_r getaliasent_r getcanonname_r getetherent_r \
     getgrent_r getgrgid_r getgrnam_r gethostbyaddr2_r gethostbyaddr_r gethostbyname2_r \
     gethostbyname3_r gethostbyname4_r gethostbyname_r gethostent_r gethostton_r getnetbyaddr_r \
     getnetbyname_r getnetent_r getnetgrent_r getntohost_r getprotobyname_r getprotobynumber_r \
     getprotoent_r getpublickey getpwent_r getpwnam_r getpwuid_r getrpcbyname_r getrpcbynumber_r \
     getrpcent_r getsecretkey getservbyname_r getservbyport_r getservent_r getsgent_r getsgnam_r \
     getspent_r getspnam_r initgroups_dyn netname2user setaliasent setetherent setgrent sethostent \
     setnetent setnetgrent setprotoent setpwent setrpcent setservent setsgent setspent"
        .split(' ')
        .collect()
});

/// Returns whether an object is the C library or has the functions of a service.
pub(super) fn is_service(loaded: &Loaded) -> bool {
    let name = loaded.file.rsplit('/').next().unwrap_or("");
    loaded.is_c_library || name.starts_with("libnss_")
}

/// Returns the name that selects a function of a service.
pub(super) fn service_function(name: &[u8]) -> Option<&'static str> {
    let name = std::str::from_utf8(name).ok()?.strip_prefix("_nss_")?;
    let (_, function) = name.split_once('_')?;
    SERVICE_FUNCTIONS.get(function).copied()
}
