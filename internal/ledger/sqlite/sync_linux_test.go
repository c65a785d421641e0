package sqlite_test

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// failSyncs makes fsync and fdatasync fail with EIO for file descriptors below the given number. This affects all
// threads and cannot be undone.
func failSyncs(below uint32) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const (
		number, argument = 0, 16 // offsets of the system call number and of its first argument
		load             = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal            = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atLeast          = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		give             = unix.BPF_RET | unix.BPF_K
	)
	filter := []unix.SockFilter{
		{Code: load, K: number},
		{Code: equal, K: unix.SYS_FSYNC, Jt: 1},
		{Code: equal, K: unix.SYS_FDATASYNC, Jf: 2},
		{Code: load, K: argument},
		{Code: atLeast, K: below, Jf: 1},
		{Code: give, K: unix.SECCOMP_RET_ALLOW},
		{Code: give, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EIO)},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&program))); errno != 0 {
		return errno
	}
	return nil
}

const syncVariable = "KUBENERGY_FAILING_SYNCS"

// The disk does not confirm writes. A seccomp filter fails fsync for all open files. Because it cannot be removed,
// the test runs in a separate process. The disk is repaired by opening files with higher descriptor numbers.
//
//test:norace
func TestFailingSyncs(t *testing.T) {
	if os.Getenv(syncVariable) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFailingSyncs$", "-test.v")
		cmd.Env = append(os.Environ(), syncVariable+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	const step = 200
	below := 0
	var filled atomic.Int64 // descriptors below it are occupied as soon as they are free
	stop := make(chan struct{})
	var filling sync.WaitGroup
	defer filling.Wait()
	defer close(stop)
	filling.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				fill(t, null, int(filled.Load()))
			}
		}
	})
	faulty(t, t.TempDir(), func() {
		below += step
		if err := failSyncs(uint32(below)); errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) ||
			errors.Is(err, unix.EPERM) {
			t.Skip("system call filters are not available:", err)
		} else if err != nil {
			t.Fatal(err)
		}
	}, func() {
		filled.Store(int64(below))
		fill(t, null, below)
	})
}

// fill occupies all free file descriptors below the given number.
func fill(t *testing.T, null *os.File, below int) {
	for {
		fd, err := unix.Dup(int(null.Fd()))
		if err != nil {
			t.Error(err)
			return
		}
		if fd >= below {
			_ = unix.Close(fd)
			return
		}
	}
}
