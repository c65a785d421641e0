// Package pgtest starts a private PostgreSQL for a test: it listens on a socket of its own only, writes to disk as a
// real one does, and ends with the test.
package pgtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
)

// A Server is a PostgreSQL of a test's own.
type Server struct {
	DSN string

	dir  string
	cred *syscall.SysProcAttr
	log  *os.File

	mu  sync.Mutex
	cmd *exec.Cmd
	end chan struct{} // closed when cmd has ended
}

// Start starts a server and returns what to connect to. The test is skipped where there is no PostgreSQL.
func Start(t testing.TB) string {
	t.Helper()
	return StartServer(t).DSN
}

// StartServer is like Start, for tests that kill the server.
func StartServer(t testing.TB) *Server {
	t.Helper()
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		t.Skip("there is no initdb: PostgreSQL is not installed")
	}
	if _, err := exec.LookPath("postgres"); err != nil {
		t.Skip("there is no postgres: PostgreSQL is not installed")
	}
	// Paths of sockets may be 107 bytes long, those of tests' folders are longer.
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{dir: dir}
	t.Cleanup(func() {
		s.Stop(t)
		_ = os.RemoveAll(dir)
	})
	if s.cred, err = unprivileged(dir); err != nil {
		t.Skipf("PostgreSQL does not run as root, and there is nobody else to run it as: %v", err)
	}
	s.DSN = fmt.Sprintf("host=%s port=5432 user=kubenergy dbname=postgres sslmode=disable", dir)
	init := exec.Command(initdb, "-D", s.data(), "-U", "kubenergy", "-A", "trust", "-E", "UTF8", "--locale=C",
		"--no-sync")
	init.Dir, init.SysProcAttr = dir, s.cred
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if s.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	s.Run(t)
	return s
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// unprivileged says as whom a server runs, and gives a folder to them.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		return attr, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return attr, os.Chown(dir, int(uid), int(gid))
	}
	return nil, errors.New("no user postgres or nobody")
}

// Run starts the server, again if it was killed, and returns when it answers.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		return
	}
	// What a killed server leaves would keep another from starting.
	_ = os.Remove(filepath.Join(s.data(), "postmaster.pid"))
	cmd := exec.Command("postgres", "-D", s.data(), "-k", s.dir, "-h", "", "-p", "5432", "-c", "fsync=on", "-c",
		"shared_buffers=64MB",
		"-c", "max_connections=40", "-c", "autovacuum_naptime=5s", "-c", "max_wal_size=512MB", "-c",
		"logging_collector=off")
	cmd.Dir, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = s.dir, s.cred, s.log, s.log
	s.cmd, s.end = cmd, make(chan struct{})
	started := make(chan error)
	go func(end chan struct{}) {
		runtime.LockOSThread() // the server dies with the thread that started it
		defer runtime.UnlockOSThread()
		defer close(end)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}(s.end)
	if err := <-started; err != nil {
		s.cmd = nil
		t.Fatal(err)
	}
	if err := s.answers(); err != nil {
		log, _ := os.ReadFile(s.log.Name())
		t.Fatalf("PostgreSQL does not answer: %v\n%s", err, log)
	}
}

func (s *Server) answers() error {
	const patience, pause = 60 * time.Second, 50 * time.Millisecond
	db, err := sql.Open("pgx", s.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		if err = db.PingContext(ctx); err == nil {
			return nil
		}
		select {
		case <-s.end:
			return fmt.Errorf("it ended: %w", err)
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// Kill ends the server as a power failure does: what is not on disk is gone.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.stop(syscall.SIGKILL)
}

// Stop ends it in good order: open connections are closed.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.stop(syscall.SIGINT)
}

func (s *Server) stop(how syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	children := s.children()
	_ = s.cmd.Process.Signal(how)
	if how == syscall.SIGKILL {
		for _, pid := range children {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	select {
	case <-s.end:
	case <-time.After(20 * time.Second): // long enough for a checkpoint
		_ = s.cmd.Process.Kill()
		<-s.end
	}
	s.cmd = nil
}

// children are the server's processes. They notice that it was killed, but not at once.
func (s *Server) children() (pids []int) {
	pid := s.cmd.Process.Pid
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	for field := range strings.FieldsSeq(string(data)) {
		if child, err := strconv.Atoi(field); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

// Bytes is how much the database takes on disk.
func Bytes(t testing.TB, dsn string) int64 {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int64
	if err := db.QueryRowContext(t.Context(), "SELECT pg_database_size(current_database())").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
