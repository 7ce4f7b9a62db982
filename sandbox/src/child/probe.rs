//! The probe: confines itself as a runner does and tries what a runner must not be able to do.

use std::io::ErrorKind;

use super::{ChildError, confine, confine::step, pipe::Pipe, seccomp::Filters};
use crate::{
    confinement::Confinement,
    wire::{Confine, Hello, Kind, Start},
};

pub(crate) fn serve(pipe: &mut Pipe, start: &Start) -> Result<(), ChildError> {
    let view = confine::settle(start)?;
    pipe.send(Kind::Hello, &Hello { engine: String::new() })?;
    let order: Confine = pipe.expect(Kind::Confine)?;
    let bounds = confine::Bounds {
        data_bytes: order.memory_bytes.saturating_add(confine::HEADROOM_BYTES),
        file_bytes: order.file_bytes,
        cpu_seconds: None,
    };
    let filters = Filters::new()?;
    confine::bind(bounds, &filters)?;
    filters.second()?;

    let denied = |what: &str, result: std::io::Result<()>| match result {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::NotFound | ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            Ok(())
        }
        other => step("self-test", Err(format!("{what} answers {other:?}"))),
    };
    denied("reading /etc/passwd", std::fs::read("/etc/passwd").map(drop))?;
    denied("listing /proc", std::fs::read_dir("/proc").map(drop))?;
    denied("writing to in", std::fs::write(view.folder("in").join("probe"), b"x"))?;
    denied("writing beside out", std::fs::write(view.folder("probe"), b"x"))?;
    let file = view.folder("out").join("probe");
    step("self-test", std::fs::write(&file, b"x"))?;
    // `std` would call `unlink`, which is not among the calls left.
    let removed = rustix::fs::unlinkat(rustix::fs::CWD, &file, rustix::fs::AtFlags::empty());
    step("self-test", removed)?;

    pipe.send(
        Kind::Probed,
        &Confinement {
            landlock_abi: view.landlock,
            seccomp: true,
            rlimits: true,
            capabilities_dropped: true,
            dies_with_node: true,
            user_namespace: start.namespaces,
            user_namespace_reason: None,
        },
    )?;
    // The last test is one that it must not survive: the node looks at what it died of.
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").map(drop);
    Err(ChildError::Other(format!("asking for a socket answers {socket:?}")))
}
