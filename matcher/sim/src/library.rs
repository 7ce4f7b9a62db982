//! The scenarios that come with the program.

/// A scenario of the library: its name and its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: &'static str,
    /// The file, as TOML.
    pub text: &'static str,
}

macro_rules! entries {
    ($($name:literal),+ $(,)?) => {
        &[$(Entry { name: $name, text: include_str!(concat!("../../../scenarios/", $name, ".toml")) }),+]
    };
}

/// All scenarios, in the order in which one would try them.
pub const LIBRARY: &[Entry] = entries!["calm", "crowded", "partition", "owners-return", "gpu-trace", "scale-100k"];

/// The scenario of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    LIBRARY.iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::ScenarioFile;

    #[test]
    fn every_scenario_of_the_library_is_valid_and_has_the_name_of_its_file() {
        for entry in LIBRARY {
            let file = ScenarioFile::parse(entry.text);
            let file = file.unwrap_or_else(|problems| panic!("{}: {problems:?}", entry.name));
            assert_eq!(file.name, entry.name);
            assert!(!file.about.is_empty());
        }
        assert_eq!(find("calm").map(|entry| entry.name), Some("calm"));
        assert_eq!(find("stormy"), None);
    }

    #[test]
    fn a_plan_has_the_machines_and_tasks_that_its_file_asks_for() {
        let file = ScenarioFile::parse(find("calm").unwrap().text).unwrap();
        let plan = file.plan(1);
        assert_eq!((plan.machines.len(), plan.tasks()), (160, 8_000));
        assert_eq!(plan, file.plan(1));
        assert_ne!(plan, file.plan(2));
        assert!(plan.jobs.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let small = file.with_nodes(50).unwrap();
        assert_eq!((small.nodes, small.renters, small.providers), (50, 10, 40));
        assert_eq!(small.plan(1).tasks(), 2_000);
        assert!(small.with_nodes(1).is_err());
    }
}
