//! The `mapreduce` example from end to end: many tasks, then one whose input is the folder of all their results.

use std::fs;

use super::lab::{Lab, path, tasks};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/mapreduce");

#[test]
fn the_words_of_a_book_counted_in_sixteen_shares_are_those_of_the_whole() {
    let lab = Lab::new(2);
    let home = &lab.renter.home;
    for name in ["job.toml", "map.wasm", "reduce.toml", "reduce.wasm", "data/moby-dick.txt"] {
        home.write(&format!("book/{name}"), fs::read(format!("{EXAMPLE}/{name}")).unwrap());
    }
    let run = |file: &str| {
        let file = home.path(&format!("book/{file}"));
        home.run(&["run", "-f", path(&file), "--json", "--timeout", "90s"])
    };
    for (file, count) in [("job.toml", 16), ("reduce.toml", 1)] {
        let ran = run(file);
        assert_eq!(ran.code, Some(0), "{file}: {ran:?}");
        assert_eq!(tasks(&ran.json(), "done"), count, "{file}: {ran:?}");
    }
    for name in ["summary.json", "table.txt", "zipf.svg"] {
        let expected = fs::read_to_string(format!("{EXAMPLE}/expected/{name}")).unwrap();
        assert_eq!(home.read(&format!("book/statistics/{name}")), expected, "{name}");
    }
    let words = home.read("book/statistics/words.tsv");
    assert_eq!((words.lines().count(), words.lines().nth(1)), (1 + 17_359, Some("1\tthe\t14430")));

    // Without one of the shares there are no statistics of the whole.
    fs::remove_dir_all(home.path("book/counts/7")).unwrap();
    let ran = run("reduce.toml");
    assert_eq!((ran.code, tasks(&ran.json(), "failed")), (Some(100), 1), "{ran:?}");
}
