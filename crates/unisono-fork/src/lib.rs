//! Tells a process from the children that it forked.
//!
//! A forked child has a copy of its parent's memory. If both seal datagrams with it, they use packet numbers twice, which
//! breaks the cipher. The process number does not tell them apart: a process that is number 1 of its namespace and forks
//! into another PID namespace has a child that is number 1 too.
//!
//! So a process has a mark in memory that its children do not inherit: a page that the kernel fills with zeros in a child
//! (`MADV_WIPEONFORK`, Linux 4.14), however the child was made. On other systems, and on kernels without that, a fork
//! handler (`pthread_atfork`) clears the mark in the child; it does not run for children of a bare `clone` system call.
//!
//! ```
//! use unisono_fork::Process;
//! let owner = Process::current();
//! assert!(owner.is_current()); // false in a forked child
//! ```
//!
//! All unsafe code of the workspace's crates is here. Each unsafe block says why it is sound.
#![warn(clippy::undocumented_unsafe_blocks)]

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Where the mark of this process is: 0 in a process that has none yet, such as a child after the fork. Null before the first
/// use. A lock would not do here: at a fork another thread could hold it.
static MARK: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// The next mark. A child goes on from its parent's, so its mark is higher than those of all processes it descends from.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The mark where the kernel wipes no page: the fork handler clears it.
static HANDLED: AtomicU64 = AtomicU64::new(0);

/// One process, which keeps its memory to itself. A copy of this value in a forked child stands for the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// Returns the process that calls. If the system has no memory left for its mark, returns a process that is never the
    /// current one.
    pub fn current() -> Process {
        let Ok(mark) = mark() else { return Process(0) };
        let present = mark.load(Ordering::Acquire);
        if present != 0 {
            return Process(present);
        }
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        match mark.compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Process(next),
            Err(of_another_thread) => Process(of_another_thread),
        }
    }

    /// Returns true in this process, and false in its forked children. Costs two reads of memory.
    pub fn is_current(self) -> bool {
        // SAFETY: see `mark`.
        let mark = unsafe { MARK.load(Ordering::Acquire).as_ref() };
        self.0 != 0 && mark.is_some_and(|mark| mark.load(Ordering::Relaxed) == self.0)
    }
}

/// Returns where the mark of this process is.
fn mark() -> io::Result<&'static AtomicU64> {
    // SAFETY: the pointer is null, or it was made from a reference that is valid for ever, as `wiped` and `handled` return.
    if let Some(mark) = unsafe { MARK.load(Ordering::Acquire).as_ref() } {
        return Ok(mark);
    }
    let made = wiped().or_else(|_| handled())?;
    let place = ptr::from_ref(made).cast_mut();
    match MARK.compare_exchange(ptr::null_mut(), place, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(made),
        // Another thread was first. The page made here is never used, and stays.
        // SAFETY: as above; the pointer is not null.
        Err(of_another_thread) => Ok(unsafe { &*of_another_thread }),
    }
}

/// Returns a mark in a page of its own that the kernel fills with zeros in each forked child.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn wiped() -> io::Result<&'static AtomicU64> {
    // SAFETY: `sysconf` has no preconditions.
    let bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).map_err(io::Error::other)?;
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address that the kernel chooses changes no memory that is in use.
    let page = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the range is the mapping made above, in which nothing is stored yet.
    if unsafe { libc::madvise(page, bytes, libc::MADV_WIPEONFORK) } != 0 {
        let refused = io::Error::last_os_error();
        // SAFETY: the range is the mapping made above, and no reference leads into it.
        unsafe { libc::munmap(page, bytes) };
        return Err(refused);
    }
    // SAFETY: the page is mapped for ever, readable, writable, filled with zeros, and aligned for an AtomicU64. In this process
    // only atomic operations touch it. The kernel clears the child's page before the child runs.
    Ok(unsafe { AtomicU64::from_ptr(page.cast()) })
}

/// No such page here.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn wiped() -> io::Result<&'static AtomicU64> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns a mark that a fork handler clears in each forked child.
fn handled() -> io::Result<&'static AtomicU64> {
    extern "C" fn clear() {
        HANDLED.store(0, Ordering::Release);
    }
    // SAFETY: the handler is a function of this program, which is never unloaded. It only stores to an atomic variable, which a
    // child may do before it calls `exec`. A second registration stores once more.
    match unsafe { libc::pthread_atfork(None, None, Some(clear)) } {
        0 => Ok(&HANDLED),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::thread;

    /// Runs the check in a child made by a system call. Returns whether it holds there; `None` if the system makes no such
    /// child for want of rights.
    fn in_child(flags: libc::c_int, check: impl FnOnce() -> bool) -> Option<bool> {
        let flags = libc::c_long::from(flags | libc::SIGCHLD);
        // SAFETY: without CLONE_VM this makes a copy of the process, as `fork` does. The child only uses atomic variables,
        // makes system calls and exits.
        match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
            -1 => None,
            // SAFETY: `_exit` has no preconditions.
            0 => unsafe { libc::_exit(i32::from(!check())) },
            child => {
                let mut status = 0;
                // SAFETY: the pointer is to a local variable.
                let waited = unsafe { libc::waitpid(child as libc::pid_t, &mut status, 0) };
                assert_eq!(i64::from(waited), child);
                Some(status == 0)
            }
        }
    }

    #[test]
    fn a_process_is_told_from_its_children_and_grandchildren() {
        let parent = Process::current();
        assert!(parent.is_current() && parent == Process::current());
        let held = in_child(0, || {
            let before = !parent.is_current();
            let child = Process::current();
            let grandchild = in_child(0, || {
                let fresh = Process::current();
                let others = [parent, child].iter().all(|other| *other != fresh && !other.is_current());
                others && fresh.is_current()
            });
            before
                && child != parent
                && child.is_current()
                && !parent.is_current()
                && grandchild == Some(true)
        });
        assert_eq!(held, Some(true));
        assert!(parent.is_current());
    }

    #[test]
    fn a_child_with_the_same_process_number_is_another_process() {
        let held = in_child(libc::CLONE_NEWPID, || {
            let first = Process::current();
            let nested = in_child(libc::CLONE_NEWPID, || std::process::id() == 1 && !first.is_current());
            std::process::id() == 1 && first.is_current() && nested == Some(true)
        });
        match held {
            Some(held) => assert!(held),
            None => {
                let _ =
                    io::Write::write_all(&mut io::stderr(), b"skipped: no right to make PID namespaces\n");
            }
        }
    }

    #[test]
    fn the_fork_handler_clears_the_mark_too() {
        let mark = handled().unwrap();
        mark.store(7, Ordering::Release);
        // SAFETY: the child only reads an atomic variable and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: `_exit` has no preconditions.
            unsafe { libc::_exit(mark.load(Ordering::Acquire) as i32) };
        }
        let mut status = -1;
        // SAFETY: the pointer is to a local variable.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!((status, mark.load(Ordering::Acquire)), (0, 7));
    }

    #[test]
    fn all_threads_are_one_process() {
        let all: Vec<_> = (0..8).map(|_| thread::spawn(Process::current)).collect();
        let here = Process::current();
        assert!(all.into_iter().all(|thread| thread.join().unwrap() == here));
    }
}
