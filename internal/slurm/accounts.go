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
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// accounts find the ledger's account of a step of a job, or of a task of it, by the control group that slurmstepd makes
// for it: in version 1 /slurm/uid_1000/job_7/step_0/task_1, in version 2
// /system.slice/slurmstepd.scope/job_7/step_0/user/task_1. Any number of goroutines may ask.
type accounts struct {
	mu    sync.Mutex
	of    map[int64]charged
	next  chan struct{}        // closed once jobs have been read again
	asked chan struct{}        // that they are read again soon
	vain  map[string]time.Time // by node: until when jobs of it that are not known are not looked for

	timeout time.Duration // how long a job that is not known is looked for
}

// charged is what is known of a job that runs, or has run.
type charged struct {
	account ledger.Account
	hosts   string
	seen    time.Time
}

// stepGroup is the part of a path that slurmstepd makes.
var stepGroup = regexp.MustCompile(`/job_(\d+)/step_(\w+)(?:(?:/user)?/task_(\w+))?`)

// remembered is for how long a job counts that slurmctld has forgotten: an agent may deliver late. Later, its energy is
// booked under the control group.
const remembered = 48 * time.Hour

func (a *accounts) saw(jobs []Job, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range jobs {
		j := &jobs[i]
		if j.Hosts == "" {
			continue // it has not begun
		}
		a.of[int64(j.ID)] = charged{ledger.Account{
			Kind: ledger.Workload, Namespace: namespaceOf(j.Account), OwnerKind: "Job", Owner: j.name(),
			Parent: "Partition/" + j.partition(), Team: j.User,
		}, j.Hosts, now}
	}
	maps.DeleteFunc(a.of, func(_ int64, c charged) bool { return now.Sub(c.seen) > remembered })
	close(a.next)
	a.next = make(chan struct{})
}

// find returns what is known of a job of a node. An agent may know before us of one that began since the last look, so
// Slurm is asked again; not for long, and not for each job of a node that says what is not so.
func (a *accounts) find(node string, id int64) (c charged, ok bool) {
	const looks = 2 // the first may have begun before the job
	began := time.Now()
	for try := 0; ; try++ {
		a.mu.Lock()
		c, ok = a.of[id]
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
		select {
		case a.asked <- struct{}{}:
		default:
		}
		select {
		case <-next:
		case <-time.After(a.timeout - time.Since(began)):
		}
	}
}

// Account returns the step, or the task of one, that a control group of a node is, and the account that its energy is
// booked on; false: it is none, or of a job that does not run there. It may wait until Slurm has been asked.
func (d *Driver) Account(node, path string) (step string, a ledger.Account, ok bool) {
	m := stepGroup.FindStringSubmatch(path)
	if m == nil {
		return "", a, false
	}
	id, _ := strconv.ParseInt(m[1], 10, 64)
	c, ok := d.accounts.find(node, id)
	if !ok || !lists(c.hosts, node) {
		return "", a, false
	}
	return strings.TrimSuffix(c.account.Owner+"."+m[2]+"."+m[3], "."), c.account, true
}

// lists reports whether a list of hosts, as n[1-3,07],login, has a node.
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

// within reports whether a number lies between two others, and has as many digits as the first where one is padded.
func within(digits, first, last string) bool {
	n, err := strconv.Atoi(digits)
	from, errFrom := strconv.Atoi(first)
	to, errTo := strconv.Atoi(last)
	padded := func(s string) bool { return strings.HasPrefix(s, "0") && len(s) > 1 }
	return errors.Join(err, errFrom, errTo) == nil && from <= n && n <= to &&
		(!padded(first) && !padded(digits) || len(digits) == len(first))
}
