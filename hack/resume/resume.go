// Package resume stores the state of programs that can continue after an interruption.
package resume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Lock creates the directory and locks it until the returned file is closed or the process exits. It returns an
// error if another process holds the lock.
func Lock(folder string) (*os.File, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("locking %s, which may be in use by another process: %w", folder, err)
	}
	return lock, nil
}

// Replace writes a file atomically. If it is interrupted, the file contains either the old or the new content.
func Replace(name string, text []byte) error {
	if err := os.WriteFile(name+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// Run runs a shell command and returns its output, which is also written to the file log. When the context is
// cancelled, Run interrupts the command and all of its children, and kills them after 20 seconds.
func Run(ctx context.Context, log, command string) (string, error) {
	file, err := os.Create(log)
	if err != nil {
		return "", err
	}
	defer file.Close()
	c := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	c.Stdout, c.Stderr = file, file
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGINT) }
	c.WaitDelay = 20 * time.Second
	err = c.Run()
	if c.Process != nil && ctx.Err() != nil {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	}
	text, errRead := os.ReadFile(log)
	return string(text), errors.Join(err, errRead)
}
