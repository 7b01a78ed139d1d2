//! The members of the structures that a kernel allocates, and plans for them.

use kshrink_tests::{KernelTest, Run};
use serde_json::Value;

/// The slab allocator's arithmetic agrees with every cache of the kernel, and inodes and names of 3,600 files have plans.
#[test]
#[ignore = "boots with a plugin, which takes minutes"]
fn members_of_files_are_profiled_and_planned() {
    KernelTest::check("members_of_files_are_profiled_and_planned", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.files();
        let vmlinux = kernel.vmlinux.to_str().expect("UTF-8");
        let options = ["--dump", "memory.core", "--accesses", "accesses", "--vmlinux", vmlinux];
        test.passes(&scenario, &kernel, &options);
        let run = Run::kshrink("field-pack").arg("profile").arg(&kernel.vmlinux).arg("memory.core");
        test.chain.succeed(run.args(["--accesses", "accesses", "-o", "profile.json"]));
        let profile: Value = serde_json::from_str(&test.read("profile.json")).expect("JSON");
        let caches = profile["caches"].as_array().expect("caches");
        let figure =
            |value: &Value, key: &str| value[key].as_u64().unwrap_or_else(|| panic!("no {key}: {value}"));
        let cache = |name: &str| caches.iter().find(|cache| cache["name"] == name).expect(name);
        assert!(figure(cache("ext2_inode_cache"), "used") >= 3600);
        assert_eq!(cache("ext2_inode_cache")["type"], "ext2_inode_info");
        // More than the inodes of ext2, in all caches that have inodes.
        let types = profile["types"].as_array().expect("types");
        let of = |name: &str| types.iter().find(|of| of["name"] == name).expect(name);
        let inodes = figure(of("inode"), "objects");
        assert!(inodes >= 5000, "{inodes} inodes");
        let member = |of: &Value, name: &str| {
            let members = of["members"].as_array().expect("members").clone();
            members.into_iter().find(|member| member["name"] == name).unwrap_or_else(|| panic!("no {name}"))
        };
        let operations = member(of("inode"), "i_op");
        let values = operations["values"].as_array().expect("values");
        assert!(values.iter().any(|one| one["value"] == "ext2_file_inode_operations"), "{values:?}");
        // Every inode points to its own pages, and none has locks.
        assert_eq!(figure(&member(of("inode"), "i_mapping")["own"], "objects"), inodes);
        assert_eq!(figure(&member(of("inode"), "i_flctx"), "zero"), inodes);
        // Each inode that was allocated got a mode.
        assert!(figure(&member(of("inode"), "i_mode"), "stores") >= inodes);

        let all = test.chain.succeed(Run::kshrink("field-pack").args(["show", "profile.json"]));
        let line = all.text().lines().last().unwrap_or_default().to_owned();
        let words: Vec<&str> = line.split(' ').collect();
        assert!(line.ends_with("caches are as computed") && words[7] == words[9], "{line}");
        let saved = |threshold: &str| {
            let run = Run::kshrink("field-pack").args([
                "plan",
                "profile.json",
                "--threshold",
                threshold,
                "-o",
                "fields.json",
            ]);
            test.chain.succeed(run);
            let fields: Value = serde_json::from_str(&test.read("fields.json")).expect("JSON");
            let slab = |when: usize| fields["slab"][when].as_f64().expect("a number");
            (slab(0) - slab(1)) / slab(0)
        };
        let saved = ["0", "0.4", "0.8"].map(saved);
        assert!(saved[0] > 0.15 && saved[1] > 0.12 && saved[2] > 0.08, "{saved:?}");
        assert!(saved.is_sorted_by(|one, other| one >= other), "{saved:?}");
    });
}
