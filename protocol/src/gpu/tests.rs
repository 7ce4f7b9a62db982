use proptest::prelude::*;

use super::*;

fn request(text: &str) -> GpuRequest {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(text: &str) -> String {
    text.parse::<GpuRequest>().unwrap_err().to_string()
}

/// Device as reported, its memory in MiB, and the identity it has.
const DEVICES: &[(&str, u64, &str)] = &[
    ("NVIDIA A100-SXM4-80GB", 81_920, "A100 80GB sxm"),
    ("NVIDIA A100-SXM4-40GB", 40_960, "A100 40GB sxm"),
    ("NVIDIA A100 80GB PCIe", 81_920, "A100 80GB pcie"),
    ("NVIDIA A100-PCIE-40GB", 40_536, "A100 40GB pcie"),
    ("A100-SXM-64GB", 65_536, "A100 64GB sxm"),
    ("NVIDIA A10", 23_028, "A10 24GB pcie"),
    ("NVIDIA A10G", 22_731, "A10G 24GB pcie"),
    ("NVIDIA H100 80GB HBM3", 81_559, "H100 80GB sxm"),
    ("H100_NVLINK_80GB", 81_559, "H100 80GB sxm"),
    ("NVIDIA H100 PCIe", 81_559, "H100 80GB pcie"),
    ("NVIDIA H100 NVL", 95_830, "H100 94GB nvl"),
    ("NVIDIA H200", 143_771, "H200 141GB sxm"),
    ("NVIDIA H200 NVL", 143_771, "H200 141GB nvl"),
    ("NVIDIA GH200 480GB", 97_871, "GH200 96GB"),
    ("NVIDIA GH200 144G HBM3e", 146_831, "GH200 144GB"),
    ("NVIDIA B200", 183_359, "B200 180GB sxm"),
    ("NVIDIA L4", 23_034, "L4 24GB pcie"),
    ("NVIDIA L40S", 46_068, "L40S 48GB pcie"),
    ("Tesla T4", 15_360, "T4 16GB pcie"),
    ("Tesla V100-SXM2-16GB", 16_160, "V100 16GB sxm"),
    ("Tesla V100-PCIE-32GB", 32_510, "V100 32GB pcie"),
    ("Tesla P40", 22_919, "P40 24GB pcie"),
    ("Tesla K80", 11_441, "K80 12GB pcie"),
    ("NVIDIA GeForce RTX 4090", 24_564, "RTX 4090 24GB pcie"),
    ("NVIDIA-GeForce-RTX-4090", 24_564, "RTX 4090 24GB pcie"),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", 16_376, "RTX 4090 Laptop 16GB pcie"),
    ("NVIDIA GeForce RTX 3090", 24_576, "RTX 3090 24GB pcie"),
    ("NVIDIA GeForce RTX 3080", 10_240, "RTX 3080 10GB pcie"),
    ("NVIDIA GeForce RTX 3080", 12_288, "RTX 3080 12GB pcie"),
    ("NVIDIA GeForce RTX 4060 Ti", 16_380, "RTX 4060 Ti 16GB pcie"),
    ("NVIDIA GeForce GTX 1060 6GB", 6_144, "GTX 1060 6GB pcie"),
    ("NVIDIA RTX A6000", 49_140, "RTX A6000 48GB pcie"),
    ("NVIDIA RTX 6000 Ada Generation", 49_140, "RTX 6000 Ada 48GB pcie"),
    ("Quadro RTX 6000", 23_040, "Quadro RTX 6000 24GB pcie"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97_887, "RTX PRO 6000 96GB pcie"),
    ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4_864, "A100 sxm 1g.5gb"),
    ("AMD Instinct MI300X", 196_592, "MI300X 192GB"),
    ("AMD Radeon RX 7900 XTX", 24_560, "RX 7900 XTX 24GB pcie"),
    ("Intel(R) Arc(TM) A770 Graphics", 16_225, "Arc A770 16GB pcie"),
    ("Intel(R) Data Center GPU Max 1100", 49_152, "Max 1100 48GB pcie"),
];

#[test]
fn devices_have_the_identity_of_the_table() {
    for (name, mib, expected) in DEVICES {
        let identity = GpuIdentity::from_device(name, *mib);
        assert_eq!(identity.to_string(), *expected, "{name}");
    }
}

/// Every request against every device: those listed match, all others do not.
#[test]
fn case_u4_requests_match_their_family_and_nothing_else() {
    let cases: &[(&str, &[&str])] = &[
        (
            "A100",
            &[
                "NVIDIA A100-SXM4-80GB",
                "NVIDIA A100-SXM4-40GB",
                "NVIDIA A100 80GB PCIe",
                "NVIDIA A100-PCIE-40GB",
                "A100-SXM-64GB",
            ],
        ),
        ("A100:80GB", &["NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"]),
        ("A100-80GB", &["NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"]),
        ("a100:40gb:sxm", &[]),
        ("a100_sxm4_40gb", &["NVIDIA A100-SXM4-40GB"]),
        ("A10", &["NVIDIA A10"]),
        ("a10g", &["NVIDIA A10G"]),
        ("H100", &["NVIDIA H100 80GB HBM3", "H100_NVLINK_80GB", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"]),
        ("H100:80GB:sxm", &["NVIDIA H100 80GB HBM3", "H100_NVLINK_80GB"]),
        ("H100 NVL", &["NVIDIA H100 NVL"]),
        ("gh200", &["NVIDIA GH200 480GB", "NVIDIA GH200 144G HBM3e"]),
        ("GH200-480GB", &["NVIDIA GH200 480GB", "NVIDIA GH200 144G HBM3e"]),
        ("H200", &["NVIDIA H200", "NVIDIA H200 NVL"]),
        ("geforce rtx-4090", &["NVIDIA GeForce RTX 4090", "NVIDIA-GeForce-RTX-4090"]),
        ("GeForceRTX4090", &["NVIDIA GeForce RTX 4090", "NVIDIA-GeForce-RTX-4090"]),
        ("A6000", &["NVIDIA RTX A6000"]),
        ("RTX6000Ada", &["NVIDIA RTX 6000 Ada Generation"]),
        ("Quadro RTX 6000", &["Quadro RTX 6000"]),
        (
            "24GB",
            &[
                "NVIDIA A10",
                "NVIDIA A10G",
                "NVIDIA L4",
                "Tesla P40",
                "NVIDIA GeForce RTX 4090",
                "NVIDIA-GeForce-RTX-4090",
                "NVIDIA GeForce RTX 3090",
                "Quadro RTX 6000",
                "AMD Radeon RX 7900 XTX",
            ],
        ),
        ("nvidia:141GB..", &["NVIDIA GH200 144G HBM3e", "NVIDIA H200", "NVIDIA H200 NVL", "NVIDIA B200"]),
        ("amd", &["AMD Instinct MI300X", "AMD Radeon RX 7900 XTX"]),
        ("1g.5gb", &["NVIDIA A100-SXM4-40GB MIG 1g.5gb"]),
        ("A100:1g.5gb:2", &["NVIDIA A100-SXM4-40GB MIG 1g.5gb"]),
        ("A100,H100:94GB..", &["NVIDIA H100 NVL"]),
    ];
    for (text, expected) in cases {
        if expected.is_empty() {
            assert!(text.parse::<GpuRequest>().is_err(), "{text}");
            continue;
        }
        let request = request(text);
        for (name, mib, _) in DEVICES {
            let identity = GpuIdentity::from_device(name, *mib);
            assert_eq!(request.matches(&identity), expected.contains(name), "{text} and {name}");
        }
    }
}

#[test]
fn case_u1_24gb_matches_cards_that_report_less() {
    for (name, mib) in [("NVIDIA GeForce RTX 4090", 24_564), ("NVIDIA GeForce RTX 3090", 24_576), ("NVIDIA L4", 23_034)]
    {
        assert!(request("24GB").matches(&GpuIdentity::from_device(name, mib)), "{name}");
        assert!(request("24GiB").matches(&GpuIdentity::from_device(name, mib)), "{name}");
    }
}

#[test]
fn case_u3_a_model_number_is_not_a_count() {
    assert_eq!(
        refusal("4090"),
        "\"4090\": 4090 is a model number, not a count, did you mean RTX 4090 or RTX 4090 D or RTX 4090 Laptop?"
    );
    assert!(refusal("4090:24GB").contains("did you mean RTX 4090"));
    assert!(refusal("RTX 4090:3090").contains("did you mean RTX 3090"));
    assert_eq!(request("H100 80GB:8"), request("H100:80GB:8"));
    assert_eq!(refusal("2xA100"), "\"2xA100\": the count comes last, write \"A100:2\"");
    assert_eq!(refusal("A100x2"), "\"A100x2\": the count is an item of its own, write \"A100:2\"");
    assert!(refusal("A100:80").contains("for memory write \"80GB\""));
}

#[test]
fn case_u19_malformed_requests_are_refused_with_place_and_hint() {
    assert_eq!(refusal("A1O0"), "\"A1O0\": unknown GPU \"A1O0\", did you mean \"A100\"?");
    assert_eq!(
        refusal("H100:A1000000"),
        "\"H100:A1000000\": unknown GPU \"A1000000\" (at character 6), did you mean \"A100\"?"
    );
    assert!(refusal("RTX 6000").contains("more than one GPU has this name"));
    assert!(refusal("A100:24GB").contains("A100 comes with 40GB or 64GB or 80GB"));
    assert!(refusal("amd:A100").contains("A100 is made by nvidia"));
    assert!(refusal("A100:H100").contains("join names with \",\""));
    assert!(refusal("A100:80GB:80GB").contains("given twice"));
    assert!(refusal("A100-80GB:80GB").contains("given twice"));
    assert!(refusal("A10,A100-80GB").contains("do not agree on memory"));
    assert!(refusal("A100:1..2..3").contains("two bounds"));
    for text in [
        "",
        ":",
        "A100:",
        "A100::2",
        "A100:0",
        "A100:-1",
        "A100:1.5",
        "A100\n",
        "A100,",
        "A100,A100",
        "24.5GB",
        "8g.80gb",
        "..",
        "x",
        "A100:2:3",
    ] {
        assert!(text.parse::<GpuRequest>().is_err(), "{text:?}");
    }
}

#[test]
fn a_slice_is_only_given_to_those_who_name_it() {
    let slice = GpuIdentity::from_device("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4_864);
    assert_eq!(request("A100").mismatch(&slice), Some(GpuMismatch::Mig));
    assert_eq!(request("nvidia").mismatch(&slice), Some(GpuMismatch::Mig));
    let whole = GpuIdentity::from_device("NVIDIA A100-SXM4-40GB", 40_960);
    assert_eq!(request("A100:1g.5gb").mismatch(&whole), Some(GpuMismatch::Mig));
}

#[test]
fn mismatches_name_the_first_difference() {
    let gpu = GpuIdentity::from_device("NVIDIA A100-SXM4-40GB", 40_960);
    assert_eq!(request("amd").mismatch(&gpu), Some(GpuMismatch::Vendor));
    assert_eq!(request("A10").mismatch(&gpu), Some(GpuMismatch::Family));
    assert_eq!(request("A100:80GB").mismatch(&gpu), Some(GpuMismatch::Memory));
    assert_eq!(request("A100:pcie").mismatch(&gpu), Some(GpuMismatch::Form));
    assert_eq!(request("A100:40GB:sxm:8").mismatch(&gpu), None);
}

#[test]
fn an_unknown_device_keeps_its_name_and_has_no_class() {
    let gpu = GpuIdentity::from_device("NVIDIA Z900 32GB", 32_768);
    assert_eq!((gpu.vendor, gpu.family.as_str(), gpu.memory), (Vendor::Nvidia, "Z900", None));
    assert!(request("nvidia").matches(&gpu));
    assert!(!request("32GB").matches(&gpu));
    // A known family with an amount of memory it is not sold with.
    assert_eq!(GpuIdentity::from_device("NVIDIA GeForce RTX 4090", 49_140).memory, None);
    assert_eq!(GpuIdentity::from_name("Z900"), None);
}

#[test]
fn names_alone_give_the_class_where_they_can() {
    let named = |name: &str| GpuIdentity::from_name(name).unwrap().to_string();
    assert_eq!(named("H100_NVLINK_80GB"), "H100 80GB sxm");
    assert_eq!(named("RTX 4090"), "RTX 4090 24GB pcie");
    assert_eq!(named("A100"), "A100");
    assert_eq!(named("GB200-480GB"), "GB200 186GB");
    assert_eq!(named("GH200-480GB"), "GH200");
}

#[test]
fn requests_are_described_for_people() {
    assert_eq!(request("A100:80GB:2").describe(), "2x A100 80GB");
    assert_eq!(request("24GB..48GB:1..4").describe(), "1..4x 24GB..48GB");
    assert_eq!(request("3").describe(), "3x GPU");
    assert_eq!(request("nvidia:L4,T4").describe(), "1x L4/T4");
}

#[test]
fn every_family_of_the_table_is_found_by_its_names() {
    for row in table::ALL {
        for spelling in [
            row.family.to_owned(),
            row.family.to_lowercase(),
            row.family.replace(' ', "_"),
            row.family.replace(' ', ""),
        ] {
            let request = request(&spelling);
            assert_eq!(request.families.iter().map(GpuFamily::as_str).collect::<Vec<_>>(), [row.family], "{spelling}");
        }
        for alias in row.aliases {
            assert_eq!(table::find(alias).map(|found| found.family), Some(row.family), "{alias}");
        }
        assert!(row.family.len() <= 48);
        assert!(row.classes.is_sorted() && !row.classes.is_empty(), "{}", row.family);
    }
}

#[test]
fn the_memory_classes_of_a_family_never_overlap() {
    for row in table::ALL {
        for mib in (0..330_000).step_by(64) {
            let classes = row
                .classes
                .iter()
                .filter(|class| (u64::from(**class) * 925..=u64::from(**class) * 1_034).contains(&mib));
            assert!(classes.count() <= 1, "{} at {mib} MiB", row.family);
        }
        for class in row.classes {
            assert_eq!(row.class_of(u64::from(*class) * 1_024), Some(*class));
        }
    }
}

#[test]
fn a_request_on_the_wire_is_bounded() {
    let text = (0..17).map(|_| "A100").collect::<Vec<_>>().join(",");
    assert!(text.parse::<GpuRequest>().is_err());
    let names: Vec<_> = table::ALL.iter().take(17).map(|row| row.family).collect();
    assert!(names.join(",").parse::<GpuRequest>().unwrap_err().to_string().contains("at most 16 names"));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,40}|[A-Za-z0-9:,.+ xgGB-]{0,40}", mib: u64) {
        let _ = text.parse::<GpuRequest>();
        let _ = GpuIdentity::from_device(&text, mib);
        let _ = GpuIdentity::from_name(&text);
    }

    #[test]
    fn requests_read_back_what_they_show(
        vendor: bool,
        families in proptest::sample::subsequence(vec!["A100", "H100", "RTX 4090", "L40S", "RTX 6000 Ada"], 0..4),
        memory in proptest::option::of((1u16..100, 1u16..100)),
        form in proptest::option::of(prop_oneof![Just(GpuForm::Sxm), Just(GpuForm::Pcie), Just(GpuForm::Nvl)]),
        mig in proptest::option::of((1u8..=7, 1u16..100, any::<bool>())),
        count in (1u32..=64, proptest::option::of(1u32..=64)),
    ) {
        let (lo, hi) = count;
        let request = GpuRequest {
            vendor: vendor.then_some(Vendor::Nvidia),
            families: families.into_iter().map(GpuFamily::of).collect::<Vec<_>>().try_into().unwrap(),
            memory: memory.map(|(a, b)| Range { lo: MemoryClass(a.min(b)), hi: Some(MemoryClass(a.max(b))) }),
            form,
            mig: mig.map(|(slices, memory, media)| MigProfile { slices, memory, media }),
            count: Range { lo: Count(hi.map_or(lo, |hi| lo.min(hi))), hi: hi.map(|hi| Count(lo.max(hi))) },
        };
        match request.to_string().parse::<GpuRequest>() {
            Ok(read) => prop_assert_eq!(read, request),
            Err(error) => prop_assert!(error.problem.contains("no such GPU"), "{}", error),
        }
    }
}
