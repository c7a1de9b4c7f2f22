//! Taking back cells: variables and files are what they were before them.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::World;
use crate::session::Session;

#[test]
fn undo_takes_back_variables_and_files() {
    let world = World::new();
    let session = Session::new(&world.server);
    let refused = session.post("/undo", &json!({}));
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.json()["detail"].as_str().unwrap().contains("no cell to undo"), "{}", refused.text());

    session.cell("import os; x = [1]; open('a.txt', 'w').write('one')");
    session.cell("x.append(2); open('a.txt', 'w').write('two'); open('b.txt', 'w').write('b')");
    session.cell("x.append(3); os.remove('a.txt'); os.makedirs('deep'); open('deep/c.txt', 'w').write('c')");
    session.upload("meanwhile.txt", b"from outside");
    assert_eq!(session.kernel()["undoable"], 3);

    let look = "print(x, sorted(n for n in os.listdir() if n != 'deep'), os.path.exists('deep/c.txt'))";
    assert_eq!(
        session.undo(1),
        json!({ "cells": 2, "restored_files": ["a.txt"], "removed_files": ["deep/c.txt"] })
    );
    assert_eq!(session.printed(look), "[1, 2] ['a.txt', 'b.txt', 'meanwhile.txt'] False");
    assert_eq!(session.content_of("a.txt"), "two");
    // That was a cell, too.
    assert_eq!(
        session.undo(2),
        json!({ "cells": 1, "restored_files": ["a.txt"], "removed_files": ["b.txt"] })
    );
    assert_eq!(session.printed(look), "[1] ['a.txt', 'meanwhile.txt'] False");
    assert_eq!(session.content_of("a.txt"), "one");
    let listed: Vec<_> =
        session.files("").iter().map(|file| file["name"].as_str().unwrap().to_owned()).collect();
    assert!(listed.contains(&"a.txt".to_owned()) && !listed.contains(&"b.txt".to_owned()), "{listed:?}");

    // Not more than there is, and nothing happens then.
    let refused = session.post("/undo", &json!({ "cells": 30 }));
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.json()["detail"].as_str().unwrap().contains("at most the last 2"), "{}", refused.text());
    assert_eq!(session.printed("print(x)"), "[1]");
    for bad in [json!({ "cells": -1 }), json!({ "cell": 1 }), json!({ "cells": "all" })] {
        assert_eq!(session.post("/undo", &bad).status, 400, "{bad}");
    }
    // A cell that failed is one, one that was killed is none: it is undone already.
    session.cell("x.append(9); 1 / 0");
    session.cell("x.append(10); os._exit(1)");
    session.undo(1);
    assert_eq!(session.printed("print(x)"), "[1]");
    // And of bash.
    session.cell_in("bash", "A=1");
    session.cell_in("bash", "A=2; echo 2 > of_bash.txt; cd /tmp");
    assert_eq!(session.undo(1)["removed_files"], json!(["of_bash.txt"]));
    assert_eq!(session.printed_in("bash", "echo $A $PWD"), "1 /mnt/data");
    world.assert_sound();
}

#[test]
fn only_as_many_cells_can_be_undone_as_the_profile_says() {
    let world = World::with("", "undo = 2\n");
    let session = Session::new(&world.server);
    session.cell("x = 0");
    for _ in 0..6 {
        session.cell("x += 1");
    }
    assert_eq!(session.kernel()["undoable"], 2);
    assert_eq!(session.post("/undo", &json!({ "cells": 3 })).status, 400);
    session.undo(2);
    assert_eq!(session.printed("print(x)"), "4");

    let world = World::with("", "undo = 0\n");
    let session = Session::new(&world.server);
    session.cell("x = 1; import os");
    session.cell("x = 2");
    assert_eq!(session.post("/undo", &json!({})).status, 400);
    assert!(session.cell("os._exit(1)").is("restored"), "a checkpoint there is all the same");
    assert_eq!(session.printed("print(x)"), "2");
}

#[test]
fn a_hundred_megabytes_of_pandas_data_can_be_undone() {
    let world = World::with("", "[profiles.default.limits]\nmemory = \"1GiB\"\nwall = \"60s\"\n");
    let session = Session::new(&world.server);
    let before = session.printed(
        "import numpy as np, pandas as pd
df = pd.DataFrame(np.arange(13_000_000, dtype='float64').reshape(-1, 10), columns=list('abcdefghij'))
print(df.memory_usage().sum() > 100e6, df['j'].sum())",
    );
    session.cell("df.iloc[:, 5:] = 0.0; df['k'] = 1.0");
    session.cell("del df");
    let start = Instant::now();
    session.undo(1);
    assert_eq!(session.printed("print(df['j'].sum(), df.shape[1])"), "0.0 11");
    session.undo(2);
    assert_eq!(session.printed("print(True, df['j'].sum())"), before);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    world.assert_sound();
}

#[test]
fn random_numbers_go_on_as_they_would_have() {
    let world = World::new();
    let session = Session::new(&world.server);
    session.cell("import random, os, numpy as np\nrandom.seed(3); random.random(); np.random.seed(3); rng = np.random.default_rng(3)");
    let look = "print(random.random(), np.random.rand(), rng.random())";
    let first = session.cell(&format!("{look}; import sys; sys.stdout.flush(); os._exit(1)"));
    assert!(first.is("restored"));
    assert_eq!(session.cell(look).stdout(), first.stdout());
    let second = session.printed(look);
    session.undo(1);
    assert_eq!(session.printed(look), second);
    // Those of two sessions are not the same.
    let one = |session: &Session| {
        session.printed(
            "import random, uuid, secrets; print(random.random(), uuid.uuid4(), secrets.token_hex())",
        )
    };
    assert_ne!(one(&Session::new(&world.server)), one(&Session::new(&world.server)));
}
