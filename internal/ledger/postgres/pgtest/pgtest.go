// Package pgtest starts a private PostgreSQL server for a test. The server listens on a private socket only, writes
// to disk like a production server, and is stopped when the test finishes.
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
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
)

// A Server is a PostgreSQL server of a test.
type Server struct {
	DSN string

	dir      string
	programs string // directory that contains initdb and postgres
	cred     *syscall.SysProcAttr
	log      *os.File

	mu  sync.Mutex
	cmd *exec.Cmd
	end chan struct{} // closed when cmd has exited
}

// Start starts a server and returns its connection string. The test is skipped if PostgreSQL is not installed.
func Start(t testing.TB) string {
	t.Helper()
	return StartServer(t).DSN
}

// StartServer is like Start, for tests that kill the server.
func StartServer(t testing.TB) *Server {
	t.Helper()
	programs, err := programs()
	if err != nil {
		t.Skipf("PostgreSQL is not installed: %v", err)
	}
	// The path of a socket is limited to 107 bytes, and temporary directories of tests have longer paths.
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // path as reported by the kernel
		t.Fatal(err)
	}
	s := &Server{dir: dir, programs: programs}
	t.Cleanup(func() {
		s.Stop(t)
		_ = os.RemoveAll(dir)
	})
	if s.cred, err = unprivileged(dir); err != nil {
		t.Skipf("PostgreSQL cannot run as root and there is no other user: %v", err)
	}
	s.DSN = fmt.Sprintf("host=%s port=5432 user=kubenergy dbname=postgres sslmode=disable", dir)
	init := exec.Command(filepath.Join(s.programs, "initdb"), "-D", s.data(), "-U", "kubenergy", "-A", "trust", "-E",
		"UTF8", "--locale=C",
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

// debian is the installation directory of PostgreSQL on Debian and Ubuntu, which is versioned and not in PATH.
const debian = "/usr/lib/postgresql/*/bin"

// programs returns the directory of initdb and postgres. It prefers PATH over the highest version installed by
// Debian.
func programs() (string, error) {
	folders, err := filepath.Glob(debian)
	if err != nil {
		return "", err
	}
	version := func(folder string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(folder)))
		return n
	}
	slices.SortFunc(folders, func(a, b string) int { return version(b) - version(a) })
	for _, folder := range slices.Concat(filepath.SplitList(os.Getenv("PATH")), folders) {
		_, noInit := exec.LookPath(filepath.Join(folder, "initdb"))
		_, noServer := exec.LookPath(filepath.Join(folder, "postgres"))
		if noInit == nil && noServer == nil {
			return folder, nil
		}
	}
	return "", fmt.Errorf("neither a directory in PATH nor %s contains initdb and postgres", debian)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// unprivileged returns the credentials of the user that runs the server, and makes the user the owner of dir.
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
	return nil, errors.New("there is no user postgres or nobody")
}

// Run starts the server, also after it was killed, and returns when it accepts connections.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		return
	}
	// The PID file of a killed server prevents another one from starting.
	_ = os.Remove(filepath.Join(s.data(), "postmaster.pid"))
	cmd := exec.Command(filepath.Join(s.programs, "postgres"), "-D", s.data(), "-k", s.dir, "-h", "", "-p", "5432",
		"-c", "fsync=on", "-c",
		"shared_buffers=64MB",
		"-c", "max_connections=40", "-c", "autovacuum_naptime=5s", "-c", "max_wal_size=512MB", "-c",
		"logging_collector=off")
	cmd.Dir, cmd.SysProcAttr, cmd.Stdout, cmd.Stderr = s.dir, s.cred, s.log, s.log
	s.cmd, s.end = cmd, make(chan struct{})
	started := make(chan error)
	go func(end chan struct{}) {
		runtime.LockOSThread() // Pdeathsig kills the server when this thread exits
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
		t.Fatalf("PostgreSQL does not respond: %v\n%s", err, log)
	}
}

func (s *Server) answers() error {
	db, err := sql.Open("pgx", s.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for {
		if err = db.PingContext(ctx); err == nil {
			return nil
		}
		select {
		case <-s.end:
			return fmt.Errorf("server exited: %w", err)
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// Kill kills the server like a crash would. Data that is not on disk is lost.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.stop(t, syscall.SIGKILL)
}

// Stop shuts the server down and closes open connections.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.stop(t, syscall.SIGINT)
}

const pause = 50 * time.Millisecond // interval between polls of a server

// timeout is the maximum duration of starting or stopping a server. It is generous, because both take many times
// longer on a busy machine and no test depends on their duration.
const timeout = 2 * time.Minute

func (s *Server) stop(t testing.TB, how syscall.Signal) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(how)
	select {
	case <-s.end:
	case <-time.After(timeout):
		_ = s.cmd.Process.Kill()
		<-s.end
	}
	s.cmd = nil
	// The child processes of a killed server exit with a delay. Until then they hold the shared memory of the data
	// directory, and no other server can start there.
	for deadline := time.Now().Add(timeout); ; time.Sleep(pause) {
		left := s.processes()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%v after stopping the server, its processes %v are still running", timeout, left)
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// processes returns the processes with the data directory as their working directory. These are the processes of
// the server, because the directory belongs to this test. Zombies are not included, because the kernel reports no
// directory for them.
func (s *Server) processes() (pids []int) {
	links, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, link := range links {
		if folder, err := os.Readlink(link); err == nil && folder == s.data() {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// Bytes returns the size of the database on disk.
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
