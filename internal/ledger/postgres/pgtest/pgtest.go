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
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
)

// A Server is a PostgreSQL of a test's own.
type Server struct {
	DSN string

	dir      string
	programs string // the folder of initdb and postgres
	cred     *syscall.SysProcAttr
	log      *os.File

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
	programs, err := programs()
	if err != nil {
		t.Skipf("PostgreSQL is not installed: %v", err)
	}
	// Paths of sockets may be 107 bytes long, those of tests' folders are longer.
	dir, err := os.MkdirTemp("", "pg")
	if err != nil {
		t.Fatal(err)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // as the kernel names the folder
		t.Fatal(err)
	}
	s := &Server{dir: dir, programs: programs}
	t.Cleanup(func() {
		s.Stop(t)
		_ = os.RemoveAll(dir)
	})
	if s.cred, err = unprivileged(dir); err != nil {
		t.Skipf("PostgreSQL does not run as root, and no other user is there: %v", err)
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

// debian is where Debian and Ubuntu install the servers of PostgreSQL: outside of PATH, by their versions.
const debian = "/usr/lib/postgresql/*/bin"

// programs returns the folder of initdb and postgres: the first one in PATH, else Debian's of the highest version.
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
	return "", fmt.Errorf("no folder of PATH, and none of %s, holds initdb and postgres", debian)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// unprivileged says as which user a server runs, and gives a folder to them.
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
	cmd := exec.Command(filepath.Join(s.programs, "postgres"), "-D", s.data(), "-k", s.dir, "-h", "", "-p", "5432",
		"-c", "fsync=on", "-c",
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
	s.stop(t, syscall.SIGKILL)
}

// Stop ends it in good order: open connections are closed.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.stop(t, syscall.SIGINT)
}

const pause = 50 * time.Millisecond // between two looks at a server

// timeout is how long a server may take to start or to end. It is generous: on a busy machine either takes many times
// as long as usual, and no test is about it.
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
	// The server's processes notice that it was killed, but not at once. As long as one lives it holds the shared
	// memory of the data folder, and no other server starts there.
	for deadline := time.Now().Add(timeout); ; time.Sleep(pause) {
		left := s.processes()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%v after the server was stopped, its processes %v still live", timeout, left)
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// processes are all that work in the server's data folder: the server's own, as the folder is this test's. Of a process
// that has ended and waits for its parent, the kernel tells no folder.
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
