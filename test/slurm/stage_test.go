// Package slurm tests kubenergy-slurm with the Slurm packages of Debian: slurmctld, two slurmd, slurmdbd with
// MariaDB and slurmrestd. All daemons use local addresses and a temporary directory.
package slurm

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/test/kit"
)

// packages is the command that installs the required packages.
const packages = "apt-get install slurm-wlm slurmdbd slurmrestd slurm-wlm-jwt-plugin slurm-wlm-mysql-plugin " +
	"mariadb-server munge openmpi-bin libopenmpi-dev"

const (
	submitter = "nobody" // user that submits jobs
	physicist = "daemon" // user of another account
	operator  = "games"  // Slurm user of kubenergy-slurm
)

// stage is a Slurm cluster with its services.
type stage struct {
	t     *testing.T
	dir   string
	conf  string
	rest  string // address of slurmrestd
	restd *kit.Process
	api   string // address of the KubEnergy ledger
	lua   string

	metered bool // slurmd creates control groups and counts energy
}

// The tests can also run in parallel.
var (
	daemons  sync.Once // adds the daemons to PATH
	starting sync.Mutex
)

func long(t *testing.T) {
	t.Helper()
	if os.Getenv("KUBENERGY_LONG") == "" {
		t.Skip("takes ten minutes: run make slurm")
	}
	if os.Getuid() != 0 {
		t.Skip("the daemons of Slurm require root")
	}
	daemons.Do(func() {
		_ = os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin") //nolint:usetesting // not for parallel tests
	})
	for _, name := range []string{
		"munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd", "slurmrestd", "sacctmgr", "sbatch", "runuser", "mpicc",
	} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s not found: %s", name, packages)
		}
	}
}

// newStage starts a Slurm cluster until the test ends. conf contains additional lines for slurm.conf, in which DIR
// is replaced by the directory of the stage.
func newStage(t *testing.T, conf ...string) *stage {
	t.Helper()
	long(t)
	starting.Lock() // a free port must be in use before the next one is selected
	defer starting.Unlock()
	s := &stage{t: t, dir: t.TempDir(), metered: slices.Equal(conf, metering)}
	for _, folder := range []string{s.dir, filepath.Dir(s.dir)} { // the daemons use different accounts
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.conf = s.path("slurm.conf")
	for _, script := range []string{"kubenergy-epilog.sh", "pm-counters.sh"} {
		text, err := os.ReadFile(filepath.Join(kit.Root, "deploy", "slurm", script))
		if err != nil {
			t.Fatal(err)
		}
		s.write(script, 0o755, string(text))
	}
	for _, name := range []string{"munge", "db", "state", "n1", "n2", "out"} {
		if err := os.Mkdir(s.path(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.own("db", "mysql")
	if err := os.Chmod(s.path("out"), 0o777); err != nil { // jobs of two accounts write to it
		t.Fatal(err)
	}
	s.key("munge.key", 0o400)
	s.key("jwt.key", 0o600)
	s.start("munged", "--foreground", "--key-file="+s.path("munge.key"), "--socket="+s.path("munge/socket"),
		"--pid-file="+s.path("munge/pid"), "--log-file="+s.path("munge/log"), "--seed-file="+s.path("munge/seed"))
	port := func(address string) string { return address[strings.LastIndex(address, ":")+1:] }
	dbPort, dbdPort, ctldPort := port(kit.Address(t)), port(kit.Address(t)), port(kit.Address(t))
	s.run("mariadb-install-db", "--user=mysql", "--datadir="+s.path("db"), "--skip-test-db",
		"--tmpdir="+s.path("db"),
		"--auth-root-authentication-method=socket")
	socket := s.path("db/socket")
	s.start("mariadbd", "--no-defaults", "--user=mysql", "--datadir="+s.path("db"), "--socket="+socket, "--tmpdir="+s.path("db"),
		"--bind-address=127.0.0.1", "--port="+dbPort, "--pid-file="+s.path("db/pid"), "--skip-log-bin",
		"--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900")
	s.wait("mariadb", "--no-defaults", "-S", socket, "-e", `create database if not exists slurm;
create user if not exists slurm@127.0.0.1 identified by 'x'; create user if not exists slurm@localhost identified by 'x';
grant all on slurm.* to slurm@127.0.0.1; grant all on slurm.* to slurm@localhost;`)
	auth := fmt.Sprintf("AuthType=auth/munge\nAuthInfo=socket=%s\nAuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key=%s\n",
		s.path("munge/socket"), s.path("jwt.key"))
	s.write("slurmdbd.conf", 0o600, auth+fmt.Sprintf(`DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=%s
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=%s
StorageUser=slurm
StoragePass=x
StorageLoc=slurm
CommunicationParameters=NoInAddrAny
PidFile=%s
`, dbdPort, dbPort, s.path("slurmdbd.pid")))
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	s.write("slurm.conf", 0o644, auth+fmt.Sprintf(`ClusterName=test
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[2]s
SlurmUser=root
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation=%[3]s/state
SlurmdSpoolDir=%[3]s/%%n
SlurmctldPidFile=%[3]s/slurmctld.pid
SlurmdPidFile=%[3]s/slurmd-%%n.pid
SlurmdParameters=config_overrides
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SchedulerParameters=sched_interval=6,bf_interval=3,bf_resolution=6,batch_sched_delay=0
PriorityType=priority/multifactor
PriorityFlags=ACCRUE_ALWAYS
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=%[4]s
AccountingStoragePass=%[3]s/munge/socket
JobSubmitPlugins=lua
NodeName=n[1-2] NodeHostname=%[1]s NodeAddr=127.0.0.1 Port=[%[5]s,%[6]s] CPUs=8 RealMemory=1000 \
	Features=may_sleep State=UNKNOWN
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
%[7]s
`, host, ctldPort, s.dir, dbdPort, port(kit.Address(t)), port(kit.Address(t)),
		cmp.Or(strings.ReplaceAll(strings.Join(conf, "\n"), "DIR", s.dir), "ProctrackType=proctrack/linuxproc")))
	s.write("cgroup.conf", 0o644, "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
	lua, err := os.ReadFile(filepath.Join(kit.Root, "deploy", "slurm", "job_submit.lua"))
	if err != nil {
		t.Fatal(err)
	}
	s.lua = string(lua)
	s.write("job_submit.lua", 0o644, s.lua)
	s.start("slurmdbd", "-D")
	s.wait("sacctmgr", "-i", "show", "cluster", "-n")
	for _, add := range []string{
		"cluster test", "account team,physics Cluster=test", "user root Account=team",
		"user " + submitter + " Account=team", "user " + physicist + " Account=physics",
		"user " + operator + " Account=team AdminLevel=Operator",
	} {
		s.run("sacctmgr", append([]string{"-i", "add"}, strings.Fields(add)...)...)
	}
	s.start("slurmctld", "-D")
	s.wait("scontrol", "ping")
	for _, n := range []string{"n1", "n2"} {
		s.startNode(n)
	}
	kit.Eventually(t, time.Minute, "two nodes are idle", func() bool {
		text, _ := s.output("sinfo", "-h", "-N", "-p", "main", "-o", "%T")
		return strings.Count(text, "idle") == 2
	})
	s.rest, s.api = kit.Address(t), kit.Address(t)
	s.startRest()
	t.Cleanup(func() { _, _ = s.output("scancel", "-u", submitter+","+physicist) }) // before the daemons are stopped
	return s
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

func (s *stage) write(name string, mode os.FileMode, text string) {
	s.t.Helper()
	if err := os.WriteFile(s.path(name), []byte(text), mode); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) key(name string, mode os.FileMode) {
	key := make([]byte, 1024)
	_, _ = rand.Read(key)
	s.write(name, mode, string(key))
}

func (s *stage) own(name, account string) {
	s.t.Helper()
	u, err := user.Lookup(account)
	if err != nil {
		s.t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(s.path(name), uid, gid); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "SLURM_CONF="+s.conf, "SLURM_TIME_FORMAT=%s")
	cmd.Dir = s.path("out")
	return cmd
}

// start runs a daemon in the foreground until the test ends.
func (s *stage) start(name string, args ...string) *kit.Process {
	s.t.Helper()
	return kit.Start(s.t, s.dir, name, s.command(name, args...))
}

func (s *stage) output(name string, args ...string) (string, error) {
	text, err := s.command(name, args...).CombinedOutput()
	return string(text), err
}

func (s *stage) run(name string, args ...string) string {
	s.t.Helper()
	text, err := s.output(name, args...)
	if err != nil {
		s.t.Fatalf("%s %v: %v\n%s", name, args, err, text)
	}
	return text
}

// wait repeats a command until it succeeds.
func (s *stage) wait(name string, args ...string) {
	s.t.Helper()
	kit.Eventually(s.t, time.Minute, name+" "+args[0], func() bool {
		_, err := s.output("timeout", append([]string{"5", name}, args...)...)
		return err == nil
	})
}

// startRest starts slurmrestd as in Debian, except for its address.
func (s *stage) startRest(args ...string) {
	s.t.Helper()
	cmd := s.command("setpriv", append(append([]string{
		"--reuid=" + submitter, "--regid=nogroup", "--clear-groups", "slurmrestd", "-a", "rest_auth/jwt",
	}, args...), s.rest)...)
	cmd.Env = append(cmd.Env, "SLURM_JWT=daemon")
	cmd.Dir = "/"
	var err error
	if s.restd, err = kit.Launch(s.dir, "slurmrestd", cmd); err != nil {
		s.t.Fatal(err)
	}
	p := s.restd
	s.t.Cleanup(func() { p.End(s.t) })
	time.Sleep(time.Second)
}

// token replaces the token file with the command of the systemd unit.
func (s *stage) token(account string) {
	s.t.Helper()
	unit, err := os.ReadFile("../../deploy/systemd/kubenergy-slurm-token.service")
	_, script, ok := strings.Cut(string(unit), "\nExecStart=/bin/sh -euc '")
	script, _, closed := strings.Cut(script, "'\n")
	if err != nil || !ok || !closed {
		s.t.Fatalf("no command in the unit of the token: %v", err)
	}
	script = strings.NewReplacer("=kubenergy", "="+account, "chown kubenergy", "chown root", "slurm-token", "token").
		Replace(script)
	s.run("sh", "-euc", "cd "+s.path("")+"; "+script)
}

// submit submits a job that sleeps and returns its ID and the messages for the submitter.
func (s *stage) submit(seconds int, comment string, args ...string) (id int64, reported string) {
	s.t.Helper()
	return s.sbatch(submitter, append([]string{
		"--output=/dev/null", "--time=5", "--comment=" + comment, "--wrap=sleep " + strconv.Itoa(seconds),
	}, args...)...)
}

func (s *stage) sbatch(account string, args ...string) (id int64, reported string) {
	s.t.Helper()
	cmd := s.command("runuser", append([]string{"-u", account, "--", "sbatch", "--parsable"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("sbatch: %v\n%s", err, errs.String())
	}
	first, _, _ := strings.Cut(strings.TrimSpace(out.String()), ";")
	id, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return id, errs.String()
}

// job is the record of a job in slurmdbd.
type job struct {
	submit, eligible, start, end time.Time
	state                        string
}

// jobs returns all jobs of the last three hours by ID.
func (s *stage) jobs() map[int64]job {
	s.t.Helper()
	text := s.run("sacct", "-a", "-X", "-n", "-P", "-S", "now-3hours", "-o", "JobIDRaw,Submit,Eligible,Start,End,State")
	all := map[int64]job{}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), "|")
		id, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil {
			continue
		}
		at := func(text string) time.Time {
			n, _ := strconv.ParseInt(text, 10, 64) // "Unknown" yields zero
			return time.Unix(n, 0)
		}
		all[id] = job{at(f[1]), at(f[2]), at(f[3]), at(f[4]), f[5]}
	}
	return all
}

// startNode starts a slurmd. If Slurm meters energy, slurmd gets its own /tmp, as MPI requires, and its own
// pm_counters.
func (s *stage) startNode(name string) {
	slurmd := []string{"slurmd", "-D", "-b", "-N", name}
	if s.metered {
		slurmd = append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-ec", `own=$1 dir=$2
shift 2
mkdir -p $own/tmp $own$dir
chmod 1777 $own/tmp
mount --rbind $dir $own$dir
mount --rbind $own/tmp /tmp
exec "$@"`, "-", s.path("own-" + name), s.dir, s.path("pm-counters.sh"), "run", s.path("pm-" + name)}, slurmd...)
	}
	kit.Start(s.t, s.dir, "slurmd-"+name, s.command(slurmd[0], slurmd[1:]...))
}

// ours starts kubenergy-slurm with a grid that has a low carbon intensity in one of four minutes.
func (s *stage) ours(args ...string) *kit.Process {
	s.t.Helper()
	config := s.path("config")
	if err := os.MkdirAll(config, 0o755); err != nil {
		s.t.Fatal(err)
	}
	kit.Write(s.t, filepath.Join(config, "all.yaml"), `
{apiVersion: kubenergy.io/v1alpha1, kind: GridZone, metadata: {name: de},
 spec: {zone: DE, default: true, carbon: {sources: [{file: {path: grid.csv}}]},
  price: {currency: EUR, sources: [{static: {value: 0.25}}]}}}
---
{apiVersion: kubenergy.io/v1alpha1, kind: EnergyPolicy, metadata: {name: default}, spec: {mode: enforce}}
---
{apiVersion: kubenergy.io/v1alpha1, kind: PowerProfile, metadata: {name: node},
 spec: {nodeSelector: {may_sleep: "true"}, idleWatts: 100, maxWatts: 200, sleepWatts: 0,
 wakeUpJoules: 1000, bootSeconds: 5}}
`)
	if _, err := os.Stat(filepath.Join(config, "grid.csv")); err != nil {
		var grid strings.Builder
		fmt.Fprintln(&grid, "time,carbon_intensity")
		from := time.Now().UTC().Truncate(time.Hour)
		for at := from; at.Before(from.Add(6 * time.Hour)); at = at.Add(time.Minute) {
			value := 400
			if clean(at) {
				value = 90
			}
			fmt.Fprintf(&grid, "%s,%d\n", at.Format(time.RFC3339), value)
		}
		kit.Write(s.t, filepath.Join(config, "grid.csv"), grid.String())
	}
	p, err := kit.Launch(s.dir, "kubenergy-slurm", exec.Command(kit.Build(s.t, "./cmd/kubenergy-slurm"), append(args,
		"--slurm-url=http://"+s.rest, "--slurm-token-file="+s.path("token"), "--slurm-conf="+s.conf,
		"--slurm-interval=1s", "--config-dir="+config, "--data-dir="+config, "--state-dir="+s.path("ours"),
		"--api-bind-address="+s.api, "--objects-bind-address="+kit.Address(s.t),
		"--metrics-bind-address=0", "--health-probe-bind-address=0")...))
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// clean reports whether the carbon intensity is low at the given time.
func clean(at time.Time) bool { return at.Minute()%4 == 0 }
