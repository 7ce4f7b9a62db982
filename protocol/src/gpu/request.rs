//! The grammar of a request: `item (":" item)*`, each kind at most once.

use std::str::FromStr;

use super::name::{self, compact};
use super::table::{self, Row};
use super::{GpuFamily, GpuForm, GpuRequest, MAX_GPU_FAMILIES, MAX_GPUS, MemoryClass, MigProfile, Vendor};
use crate::grammar::{Count, GrammarError, Range, nearest, shown};

/// Longest request text: sixteen names and all other items fit.
const MAX_REQUEST: usize = 512;
/// Names shown when several could be meant.
const MAX_SUGGESTED: usize = 4;

#[derive(Default)]
struct Items {
    vendor: Option<Vendor>,
    rows: Option<Vec<&'static Row>>,
    memory: Option<Range<MemoryClass>>,
    form: Option<GpuForm>,
    mig: Option<MigProfile>,
    count: Option<Range<Count>>,
}

impl FromStr for GpuRequest {
    type Err = GrammarError;

    /// "A100:80GB:2", "24GB..48GB", "nvidia:L4,T4", "4".
    fn from_str(text: &str) -> Result<Self, GrammarError> {
        if text.len() > MAX_REQUEST {
            return Err(
                GrammarError::new(text, 0, "the request is too long").with_hint(format!("at most {MAX_REQUEST} bytes"))
            );
        }
        if let Some(at) = text.find(char::is_control) {
            return Err(GrammarError::new(text, at, "a control character is not allowed here").with_hint("remove it"));
        }
        let mut items = Items::default();
        let mut offset: usize = 0;
        for item in text.split(':') {
            let inner = item.trim_start_matches(' ');
            let at = offset.saturating_add(item.len().saturating_sub(inner.len()));
            read_item(&mut items, inner.trim_end_matches(' ')).map_err(|error| error.within(text, at))?;
            offset = offset.saturating_add(item.len()).saturating_add(1);
        }
        let rows = items.rows.unwrap_or_default();
        check_memory(text, &rows, items.memory, items.mig)?;
        if let Some(row) = rows.iter().find(|row| items.vendor.is_some_and(|vendor| vendor != row.vendor)) {
            return Err(GrammarError::new(text, 0, format!("{} is made by {}", row.family, row.vendor)));
        }
        let families: Vec<GpuFamily> = rows.iter().map(|row| GpuFamily::of(row.family)).collect();
        Ok(Self {
            vendor: items.vendor,
            families: families
                .try_into()
                .map_err(|_| GrammarError::new(text, 0, format!("at most {MAX_GPU_FAMILIES} names")))?,
            memory: items.memory,
            form: items.form,
            mig: items.mig,
            count: items.count.unwrap_or(Range::exactly(Count(1))),
        })
    }
}

fn read_item(items: &mut Items, item: &str) -> Result<(), GrammarError> {
    let upper = item.to_ascii_uppercase();
    if item.is_empty() {
        return Err(GrammarError::new(item, 0, "an item is empty").with_hint("e.g. \"A100:80GB:2\""));
    }
    let vendor = match upper.as_str() {
        "NVIDIA" => Some(Vendor::Nvidia),
        "AMD" => Some(Vendor::Amd),
        "INTEL" => Some(Vendor::Intel),
        _ => None,
    };
    if let Some(vendor) = vendor {
        return once(&mut items.vendor, vendor, item, "a maker");
    }
    let form = match upper.as_str() {
        "SXM" => Some(GpuForm::Sxm),
        "PCIE" => Some(GpuForm::Pcie),
        "NVL" => Some(GpuForm::Nvl),
        _ => None,
    };
    if let Some(form) = form {
        return once(&mut items.form, form, item, "a form factor");
    }
    if let Some(profile) = name::mig(upper.strip_prefix("MIG-").unwrap_or(&upper)) {
        return once(&mut items.mig, profile, item, "a MIG profile");
    }
    if item.starts_with(|c: char| c.is_ascii_digit() || ".+-".contains(c)) {
        return read_number(items, item);
    }
    read_names(items, item)
}

fn once<T>(slot: &mut Option<T>, value: T, item: &str, kind: &str) -> Result<(), GrammarError> {
    if slot.is_some() {
        return Err(GrammarError::new(item, 0, format!("{kind} is given twice")));
    }
    *slot = Some(value);
    Ok(())
}

/// An item that starts like a number: a count, a size of memory, a name ("7900 XTX"), or a mistake.
fn read_number(items: &mut Items, item: &str) -> Result<(), GrammarError> {
    if !item.contains(|c: char| c.is_alphabetic()) {
        return once(&mut items.count, read_count(item)?, item, "a count");
    }
    if name::read(item).row.is_some() {
        return read_names(items, item);
    }
    if let Some((count, family)) = item.split_once(['x', 'X'])
        && is_digits(count)
        && name::read(family).row.is_some()
    {
        let right = format!("write \"{}:{count}\"", family.trim());
        return Err(GrammarError::new(item, 0, "the count comes last").with_hint(right));
    }
    let range = item.parse().map_err(|error: GrammarError| {
        // "16GBx2", "4090Ti": no size, so perhaps a model.
        match suggestions(item).first() {
            Some(family) => GrammarError::new(item, 0, "neither a size nor a known GPU")
                .with_hint(format!("did you mean \"{family}\"?")),
            None => error,
        }
    })?;
    once(&mut items.memory, range, item, "memory")
}

fn read_count(item: &str) -> Result<Range<Count>, GrammarError> {
    let range: Range<Count> = item.parse()?;
    for bound in [Some(range.lo), range.hi].into_iter().flatten() {
        let models: Vec<_> = table::with_model_number(&bound.to_string()).take(MAX_SUGGESTED).collect();
        if let [first, others @ ..] = models.as_slice() {
            let mut hint = format!("did you mean {first}");
            for other in others {
                hint.push_str(&format!(" or {other}"));
            }
            hint.push('?');
            return Err(GrammarError::new(item, 0, format!("{bound} is a model number, not a count")).with_hint(hint));
        }
        if bound.0 > MAX_GPUS {
            return Err(GrammarError::new(item, 0, format!("at most {MAX_GPUS} GPUs a task"))
                .with_hint(format!("for memory write \"{bound}GB\"")));
        }
    }
    Ok(range)
}

fn read_names(items: &mut Items, item: &str) -> Result<(), GrammarError> {
    let mut rows: Vec<&'static Row> = Vec::new();
    let mut memories = Vec::new();
    let mut forms = Vec::new();
    let mut migs = Vec::new();
    let mut offset: usize = 0;
    for part in item.split(',') {
        let inner = part.trim_matches(' ');
        let read = name::read(inner);
        let row = known(inner, &read).map_err(|error| error.within(item, offset))?;
        if rows.iter().any(|other| other.family == row.family) {
            return Err(GrammarError::new(item, offset, format!("{} is named twice", row.family)));
        }
        // The size in a superchip's name may be its processor's.
        memories.push(read.memory.filter(|class| !row.host_memory.contains(class)));
        forms.push(read.form);
        migs.push(read.mig);
        rows.push(row);
        offset = offset.saturating_add(part.len()).saturating_add(1);
    }
    // A size within a name ("A100-80GB") counts like an item of its own, so all names of a list must agree on it.
    if let Some(class) = agreed(item, &memories, "memory")? {
        once(&mut items.memory, Range::exactly(MemoryClass(class)), item, "memory")?;
    }
    if let Some(form) = agreed(item, &forms, "the form factor")? {
        once(&mut items.form, form, item, "a form factor")?;
    }
    if let Some(profile) = agreed(item, &migs, "the MIG profile")? {
        once(&mut items.mig, profile, item, "a MIG profile")?;
    }
    once(&mut items.rows, rows, item, "a list of names")
        .map_err(|error| error.with_hint("join names with \",\", e.g. \"A10,A100\""))
}

fn agreed<T: Copy + PartialEq>(item: &str, values: &[Option<T>], what: &str) -> Result<Option<T>, GrammarError> {
    match values {
        [first, rest @ ..] if rest.iter().all(|other| other == first) => Ok(*first),
        [] => Ok(None),
        _ => Err(GrammarError::new(item, 0, format!("the names do not agree on {what}"))
            .with_hint("give it once, as an item of its own: \"A10,A100:40GB\"")),
    }
}

fn known(part: &str, read: &name::Read) -> Result<&'static Row, GrammarError> {
    let typed = compact(part);
    if let Some((_, choices)) = table::AMBIGUOUS.iter().find(|(name, _)| *name == typed) {
        return Err(GrammarError::new(part, 0, "more than one GPU has this name").with_hint(format!("write {choices}")));
    }
    if let Some(row) = read.row {
        return Ok(row);
    }
    if part.is_empty() {
        return Err(GrammarError::new(part, 0, "a name is missing").with_hint("e.g. \"A10,A100\""));
    }
    let error = GrammarError::new(part, 0, format!("unknown GPU {}", shown(part)));
    // "A100x2"
    if let Some((family, count)) = part.rsplit_once(['x', 'X'])
        && is_digits(count)
        && name::read(family).row.is_some()
    {
        return Err(GrammarError::new(part, 0, "the count is an item of its own")
            .with_hint(format!("write \"{}:{count}\"", family.trim())));
    }
    let suggested = suggestions(part);
    match suggested.as_slice() {
        [] => Err(error.with_hint("e.g. \"A100\", \"RTX 4090\", or memory alone: \"24GB\"")),
        names => {
            let list: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
            Err(error.with_hint(format!("did you mean {}?", list.join(" or "))))
        }
    }
}

/// Families that could be meant: the closest by spelling, or those with the same beginning or model number.
fn suggestions(part: &str) -> Vec<&'static str> {
    let typed = compact(part);
    let compacts: Vec<(String, &'static str)> = table::families().map(|family| (compact(family), family)).collect();
    if let Some(close) = nearest(&typed, compacts.iter().map(|(key, _)| key.as_str())) {
        return compacts.iter().filter(|(key, _)| key == close).map(|(_, family)| *family).collect();
    }
    let longest = compacts.iter().filter(|(key, _)| key.len() >= 3 && typed.starts_with(key.as_str()));
    if let Some((_, family)) = longest.max_by_key(|(key, _)| key.len()) {
        return vec![family];
    }
    let digits: String = typed.chars().filter(char::is_ascii_digit).collect();
    table::with_model_number(&digits).take(MAX_SUGGESTED).collect()
}

fn check_memory(
    text: &str,
    rows: &[&'static Row],
    memory: Option<Range<MemoryClass>>,
    mig: Option<MigProfile>,
) -> Result<(), GrammarError> {
    let (Some(range), None) = (memory, mig) else {
        return Ok(());
    };
    let possible = |row: &Row| row.classes.iter().any(|class| range.contains(MemoryClass(*class)));
    if rows.is_empty() || rows.iter().any(|row| possible(row)) {
        return Ok(());
    }
    let sold: Vec<String> = rows
        .iter()
        .map(|row| {
            let sizes: Vec<String> = row.classes.iter().map(|class| format!("{class}GB")).collect();
            format!("{} comes with {}", row.family, sizes.join(" or "))
        })
        .collect();
    Err(GrammarError::new(text, 0, format!("no such GPU has {range}")).with_hint(sold.join("; ")))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
}
