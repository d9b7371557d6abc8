//! Writes the first corpus of each target to `corpus/TARGET`, where cargo-fuzz looks for it.

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    for (name, _, seeds) in unisono_fuzz::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        fs::create_dir_all(&folder)?;
        for (number, seed) in seeds().iter().enumerate() {
            fs::write(folder.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
