//! Features of user programs that a rewritten object loses: wrapped symbols, exception handlers, and calls that are
//! identified by their return addresses.

use kshrink_tests::{Chain, Machine, Outcome, Run, fixture};

const STATIC: [&str; 2] = ["-static", "-no-pie"];

/// Compiles programs of `fixtures/programs/links/`, each to an object with its name.
fn compile(chain: &mut Chain, names: &[&str], flags: &[&str]) -> Vec<String> {
    let compile = |name: &&str| {
        let object = format!("{name}.o");
        let flags = [&["-Os", "-fno-pie"], flags].concat();
        chain.compile(fixture(&format!("programs/links/{name}.c")), &object, &flags).expect("an object");
        object
    };
    names.iter().map(compile).collect()
}

/// Rewrites objects to `new.o`.
fn rewrite(chain: &mut Chain, objects: &[String], options: &[&str]) -> Outcome {
    let run = Run::kshrink("kshrink-spec").arg("--objects").args(objects).args(["--entry", "main"]);
    chain.attempt(run.args(options).args(["--emit-object", "new.o"]))
}

/// Links and runs a program, and returns what it prints.
fn output(chain: &mut Chain, program: &str, objects: &[&str], flags: &[&str]) -> String {
    chain.link(program, objects, &[&STATIC, flags].concat()).expect("a program");
    String::from_utf8(chain.succeed(Run::new(format!("./{program}"))).stdout).expect("text")
}

#[test]
fn wrapped_symbols_are_refused_or_wrapped() {
    Chain::check("wrapped_symbols_are_refused_or_wrapped", |chain| {
        let wraps = ["-Wl,--wrap=foo"];
        let objects = compile(chain, &["wrapped", "foo", "wrapper"], &[]);
        let names: Vec<&str> = objects.iter().map(String::as_str).collect();
        let expected = output(chain, "original", &names, &wraps);
        assert_eq!(expected, "1006\n");
        for passes in ["none", "reach"] {
            let refused = rewrite(chain, &objects, &["--passes", passes]);
            assert_eq!(refused.status, Some(2), "{refused}");
            assert!(refused.stderr.contains("add --wrap foo"), "{refused}");
            let outcome = rewrite(chain, &objects, &["--passes", passes, "--wrap", "foo"]);
            assert_eq!(outcome.status, Some(0), "{outcome}");
            // The link has nothing left to wrap, with or without the option.
            for flags in [&wraps[..], &[]] {
                assert_eq!(output(chain, "new", &["new.o"], flags), expected, "{passes} {flags:?}");
            }
        }
        // The wrapper is linked later: the wrapped symbol is not among the objects.
        let outcome = rewrite(chain, &objects[..1], &["--passes", "reach"]);
        assert_eq!(outcome.status, Some(0), "{outcome}");
        assert_eq!(output(chain, "new", &["new.o", "foo.o", "wrapper.o"], &wraps), expected);
        // The rewriter assumes that nothing else is wrapped.
        let outcome = rewrite(chain, &objects[..2], &["--passes", "reach"]);
        assert!(outcome.stderr.contains("links-wrap-what-is-said"), "{outcome}");
    });
}

#[test]
fn handlers_are_refused_or_reported() {
    for machine in [Machine::I386, Machine::Arm] {
        let name = format!("handlers_are_refused_or_reported {}", machine.name());
        let mut chain = Chain::new(&name).on(machine);
        let chain = &mut chain;
        let objects = compile(chain, &["cleanup"], &["-fexceptions"]);
        let refused = rewrite(chain, &objects, &["--passes", "none"]);
        assert_eq!(refused.status, Some(2), "{refused}");
        assert!(refused.stderr.contains("cleanup.o: it has exception handlers or cleanups"), "{refused}");
        let outcome = rewrite(chain, &objects, &["--passes", "none", "--drop-handlers"]);
        assert_eq!(outcome.status, Some(0), "{outcome}");
        let left_out = "left out: exception handlers and cleanups of cleanup.o, which will not run\n";
        assert!(outcome.stderr.contains(left_out), "{outcome}");
        // Without `-fexceptions`, the C library runs cleanups itself.
        for flags in [&["-fno-exceptions"][..], &["-fno-exceptions", "-funwind-tables"]] {
            let objects = compile(chain, &["cleanup"], flags);
            let outcome = rewrite(chain, &objects, &["--passes", "reach"]);
            assert_eq!(outcome.status, Some(0), "{outcome}");
            assert!(!outcome.stderr.contains("left out"), "{outcome}");
            if machine == Machine::I386 {
                assert_eq!(output(chain, "new", &["new.o"], &["-pthread"]), "clean 5\n7\n");
            }
        }
    }
}

/// The assumption is applied and reported.
#[test]
fn calls_in_identical_code_return_to_one_place() {
    Chain::check("calls_in_identical_code_return_to_one_place", |chain| {
        let objects = compile(chain, &["sites"], &["-fno-ipa-icf"]);
        assert_eq!(output(chain, "original", &["sites.o"], &[]), "16\n2 sites\n");
        for (passes, sites) in [("reach", 2), ("icf", 1), ("merge", 1)] {
            let outcome = rewrite(chain, &objects, &["--passes", passes, "--merge", "all"]);
            assert_eq!(outcome.status, Some(0), "{outcome}");
            let says = outcome.stderr.contains("return-addresses-identify-nothing");
            let printed = output(chain, "new", &["new.o"], &[]);
            assert_eq!((printed, says), (format!("16\n{sites} sites\n"), sites == 1), "{passes}: {outcome}");
        }
    });
}
