//! NVIDIA GPUs by way of NVML, the driver's own library, loaded if it is there.
//!
//! Every call blocks, and one into a driver that hangs does so for ever: call from a thread that can be given up, and
//! treat its GPUs as lost when it does not answer.

use core::fmt;
use std::{
    ffi::OsStr,
    path::Path,
    sync::{Mutex, OnceLock, PoisonError},
};

use nvml_wrapper::{Device, Nvml, enum_wrappers::device::TemperatureSensor, error::NvmlError};
use souk_protocol::{Bytes, GpuIdentity, GpuSample, List, Text};

use crate::{
    inventory::{GPU_LIST, Gpu, UnusableGpu},
    known::{known_text, known_u32, known_u64, one_line},
};

/// Names and places of the library, in the order they are tried. Machines without development files lack the first;
/// in WSL it lies outside the loader's path.
const LIBRARIES: [&str; 3] = ["libnvidia-ml.so", "libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"];
/// The mode word for "on".
const MIG_ON: u32 = 1;

/// The library of the GPU driver, initialised.
///
/// It is never unloaded: a process needs it once, and to unload it under a call that hangs would end the process.
#[derive(Clone, Copy)]
pub struct GpuDriver {
    nvml: &'static Nvml,
}

/// There is a driver and it cannot be used: worth telling the owner. A machine without one is no problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverProblem {
    /// The driver was replaced under the running kernel.
    #[error("the GPU driver and its library differ in version: restart the machine")]
    Mismatch,
    /// This user may not use the GPUs.
    #[error("this user may not use the GPU driver: check the rights on /dev/nvidiactl")]
    Forbidden,
    /// The driver's own words.
    #[error("the GPU driver does not start: {0}")]
    Other(String),
}

impl GpuDriver {
    /// The driver of this process, loaded at the first call that finds one; `None` on a machine without.
    ///
    /// # Errors
    /// [`DriverProblem`]: there is a driver, but it does not work. A later call tries again.
    pub fn load() -> Result<Option<Self>, DriverProblem> {
        static LOADED: OnceLock<GpuDriver> = OnceLock::new();
        static LOADING: Mutex<()> = Mutex::new(());
        // Two threads at once must not load it twice; the guarded value is empty, so a panic cannot spoil it.
        let _guard = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(driver) = LOADED.get() {
            return Ok(Some(*driver));
        }
        let mut problem = None;
        for library in LIBRARIES {
            match Self::load_from(Path::new(library)) {
                Ok(Some(driver)) => return Ok(Some(*LOADED.get_or_init(|| driver))),
                Ok(None) => {}
                Err(found) => problem = problem.or(Some(found)),
            }
        }
        problem.map_or(Ok(None), Err)
    }

    /// The driver of the library at `path`; `None` if it is not there, or if no driver is running behind it.
    ///
    /// # Errors
    /// [`DriverProblem`]: it is there, but it does not work.
    pub fn load_from(path: &Path) -> Result<Option<Self>, DriverProblem> {
        match Nvml::builder().lib_path(OsStr::new(path)).init() {
            Ok(nvml) => Ok(Some(Self { nvml: Box::leak(Box::new(nvml)) })),
            Err(NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound | NvmlError::DriverNotLoaded) => Ok(None),
            Err(NvmlError::LibRmVersionMismatch) => Err(DriverProblem::Mismatch),
            Err(NvmlError::NoPermission) => Err(DriverProblem::Forbidden),
            Err(other) => Err(DriverProblem::Other(other.to_string())),
        }
    }

    /// Version of the driver.
    #[must_use]
    pub fn version(&self) -> Option<Text<80>> {
        self.nvml.sys_driver_version().ok().and_then(|version| known_text(&version))
    }

    /// All GPUs that the driver counts: those that answer, and those that do not.
    #[must_use]
    pub fn gpus(&self) -> (List<Gpu, GPU_LIST>, List<UnusableGpu, GPU_LIST>) {
        let count = self.nvml.device_count().ok().and_then(known_u32).unwrap_or(0);
        let (mut gpus, mut unusable) = (Vec::new(), Vec::new());
        for index in (0..).take(GPU_LIST).take_while(|index| u32::from(*index) < count) {
            match self.gpu(index) {
                Ok(gpu) => gpus.push(gpu),
                Err(gone) => unusable.push(gone),
            }
        }
        // Neither is longer than the indices, which are as many as a list holds.
        (List::try_from(gpus).unwrap_or_default(), List::try_from(unusable).unwrap_or_default())
    }

    /// One GPU by the driver's index.
    ///
    /// # Errors
    /// [`UnusableGpu`] if it does not answer.
    pub fn gpu(&self, index: u16) -> Result<Gpu, UnusableGpu> {
        self.read(index).map_err(|error| unusable(index, &error))
    }

    /// One GPU at this moment, for a telemetry chain.
    ///
    /// # Errors
    /// [`UnusableGpu`] if it does not answer.
    pub fn sample(&self, index: u16) -> Result<GpuSample, UnusableGpu> {
        self.read_sample(index).map_err(|error| unusable(index, &error))
    }

    fn device(&self, index: u16) -> Result<Device<'static>, NvmlError> {
        self.nvml.device_by_index(u32::from(index))
    }

    fn read(&self, index: u16) -> Result<Gpu, NvmlError> {
        let device = self.device(index)?;
        let name: Text<96> = known_text(&device.name()?).ok_or(NvmlError::NoData)?;
        let memory = asked(device.memory_info())?.and_then(|info| known_u64(info.total)).map(Bytes);
        let limit = match asked(device.enforced_power_limit())? {
            Some(limit) => Some(limit),
            None => asked(device.power_management_limit())?,
        };
        Ok(Gpu {
            index,
            identity: identify(&name, memory),
            uuid: asked(device.uuid())?.and_then(|uuid| known_text(&uuid)),
            pci: asked(device.pci_info())?.and_then(|pci| known_text(&pci.bus_id)),
            driver: self.version(),
            mig: asked(device.mig_mode())?.and_then(|mode| known_u32(mode.current)).map(|mode| mode == MIG_ON),
            ecc: asked(device.is_ecc_enabled())?.map(|mode| mode.currently_enabled),
            power_limit_mw: limit.and_then(known_u32),
            memory,
            name,
        })
    }

    fn read_sample(&self, index: u16) -> Result<GpuSample, NvmlError> {
        let device = self.device(index)?;
        let busy = asked(device.utilization_rates())?.map(|rates| rates.gpu).filter(|percent| *percent <= 100);
        let temperature = asked(device.temperature(TemperatureSensor::Gpu))?.and_then(known_u32);
        Ok(GpuSample {
            index,
            busy_ppm: busy.map(|percent| percent.saturating_mul(10_000)),
            memory: asked(device.memory_info())?.and_then(|info| known_u64(info.used)).map(Bytes),
            power_mw: asked(device.power_usage())?.and_then(known_u32),
            temperature_c: temperature.and_then(|celsius| i16::try_from(celsius).ok()),
        })
    }
}

impl fmt::Debug for GpuDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuDriver").finish_non_exhaustive()
    }
}

/// What a device answers to one question. A driver may lack any function and a device any sensor: that is `None`. Only a
/// device that is gone altogether is an error.
fn asked<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(gone @ (NvmlError::GpuLost | NvmlError::ResetRequired)) => Err(gone),
        Err(_) => Ok(None),
    }
}

/// Without a word on its memory, a GPU is what its name alone says.
fn identify(name: &str, memory: Option<Bytes>) -> GpuIdentity {
    match memory {
        Some(Bytes(bytes)) => GpuIdentity::from_device(name, bytes >> 20),
        None => GpuIdentity::from_name(name).unwrap_or_else(|| GpuIdentity::from_device(name, 0)),
    }
}

fn unusable(index: u16, error: &NvmlError) -> UnusableGpu {
    let reason = match error {
        NvmlError::GpuLost => one_line("it has fallen off the bus: restart the machine"),
        NvmlError::ResetRequired => one_line("it needs a reset"),
        other => one_line(&other.to_string()),
    };
    UnusableGpu { index, reason }
}
