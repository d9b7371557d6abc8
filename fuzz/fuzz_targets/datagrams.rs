#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| unisono_fuzz::datagrams::run(data));
