package slurm

import (
	"cmp"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// accounts maps the control groups that slurmstepd creates for job steps and tasks to ledger accounts. The path is
// /slurm/uid_1000/job_7/step_0/task_1 in version 1, and /system.slice/slurmstepd.scope/job_7/step_0/user/task_1 in
// version 2. Since Slurm 26.05, version 2 uses the SLUID of the job, e.g. s5K1KKYAYG5D00, instead of job_7, unless
// cgroup.conf sets CgroupJobIdPaths. It is safe for concurrent use.
type accounts struct {
	mu    sync.Mutex
	of    map[string]charged   // by the name of the job's control group
	next  chan struct{}        // closed when jobs have been read again
	asked chan struct{}        // requests reading jobs again
	vain  map[string]time.Time // by node: until then, unknown jobs are not looked up

	sluids atomic.Bool // Slurm has reported the SLUID of a job, or its absence has been logged

	timeout time.Duration // maximum duration of a lookup of an unknown job
}

// charged contains the account and the nodes of a job that is running or has run.
type charged struct {
	account ledger.Account
	hosts   string
	seen    time.Time
}

// stepGroup matches the part of a path that slurmstepd creates. A SLUID is a number of 64 bits in Crockford's base 32.
var stepGroup = regexp.MustCompile(`/(job_\d+|s[0-9A-HJKMNP-TV-Z]{13})/step_(\w+)(?:(?:/user)?/task_(\w+))?`)

// remembered is for how long a job is kept after slurmctld has removed it, because agents may deliver late. After
// that, its energy is recorded under the control group.
const remembered = 48 * time.Hour

func (a *accounts) saw(jobs []Job, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range jobs {
		j := &jobs[i]
		if j.Hosts == "" {
			continue // not started yet
		}
		c := charged{ledger.Account{
			Kind: ledger.Workload, Namespace: namespaceOf(j.Account), OwnerKind: "Job", Owner: j.name(),
			Parent: "Partition/" + j.partition(), Team: j.User,
		}, j.Hosts, now}
		a.of["job_"+strconv.FormatInt(int64(j.ID), 10)] = c
		if j.Step.SLUID != "" {
			a.of[j.Step.SLUID] = c
			a.sluids.Store(true)
		}
	}
	maps.DeleteFunc(a.of, func(_ string, c charged) bool { return now.Sub(c.seen) > remembered })
	close(a.next)
	a.next = make(chan struct{})
}

// find returns the account and nodes of the job with a control group. An agent may report a job that started after the
// last query of Slurm, so Slurm is queried again. The number and duration of these queries are limited, and they are
// suspended for a node that reports unknown jobs.
func (a *accounts) find(node, job string) (c charged, ok bool) {
	const looks = 2 // the first query may have started before the job
	began := time.Now()
	for try := 0; ; try++ {
		a.mu.Lock()
		c, ok = a.of[job]
		next := a.next
		vain := try == looks || time.Since(began) >= a.timeout
		if !ok && vain {
			a.vain[node] = time.Now().Add(2 * a.timeout)
		}
		vain = vain || time.Now().Before(a.vain[node])
		a.mu.Unlock()
		if ok || vain {
			return c, ok
		}
		daemon.Poke(a.asked)
		select {
		case <-next:
		case <-time.After(a.timeout - time.Since(began)):
		}
	}
}

// Account returns the step or task of a control group on a node, and the account for its energy. It returns false
// if the control group does not belong to a job, or if the job does not run on the node. It may block until Slurm
// has been queried.
func (d *Driver) Account(node, path string) (step string, a ledger.Account, ok bool) {
	m := stepGroup.FindStringSubmatch(path)
	if m == nil {
		return "", a, false
	}
	c, ok := d.accounts.find(node, m[1])
	if !ok && strings.HasPrefix(m[1], "s") && d.accounts.sluids.CompareAndSwap(false, true) {
		d.o.Log.Warn("Failed to find the job of a control group named by SLUID; start slurmrestd with v0.0.44 or "+
			"later, or set CgroupJobIdPaths=yes in cgroup.conf", "node", node, "group", path)
	}
	if !ok || !lists(c.hosts, node) {
		return "", a, false
	}
	return strings.TrimSuffix(c.account.Owner+"."+m[2]+"."+m[3], "."), c.account, true
}

// lists reports whether a host list, such as n[1-3,07],login, contains a node.
func lists(hosts, node string) bool {
	depth := 0
	for pattern := range strings.FieldsFuncSeq(hosts, func(r rune) bool {
		depth += strings.Count("[", string(r)) - strings.Count("]", string(r))
		return r == ',' && depth == 0
	}) {
		if matches(pattern, node) {
			return true
		}
	}
	return false
}

func matches(pattern, node string) bool {
	before, rest, ranged := strings.Cut(pattern, "[")
	node, ok := strings.CutPrefix(node, before)
	if !ok || !ranged {
		return ok && node == ""
	}
	ranges, rest, _ := strings.Cut(rest, "]")
	digits := node[:len(node)-len(strings.TrimLeft(node, "0123456789"))]
	return matches(rest, node[len(digits):]) && slices.ContainsFunc(strings.Split(ranges, ","), func(part string) bool {
		first, last, _ := strings.Cut(part, "-")
		return within(digits, first, cmp.Or(last, first))
	})
}

// within reports whether digits are a number from first to last. If first or digits are zero-padded, they must have
// the same length.
func within(digits, first, last string) bool {
	n, err := strconv.Atoi(digits)
	from, errFrom := strconv.Atoi(first)
	to, errTo := strconv.Atoi(last)
	padded := func(s string) bool { return strings.HasPrefix(s, "0") && len(s) > 1 }
	return errors.Join(err, errFrom, errTo) == nil && from <= n && n <= to &&
		(!padded(first) && !padded(digits) || len(digits) == len(first))
}
