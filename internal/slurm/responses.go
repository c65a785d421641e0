package slurm

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// number is a count or a time: a plain number in old versions, {set, infinite, number} in young ones. Slurm's values
// for "none" and "any" read as zero.
type number int64

// noValue and the number after it are 32 bits of "none" and of "any"; their 64 bits and sums with them are larger.
const noValue = 1<<32 - 2

// UnmarshalJSON implements [json.Unmarshaler].
func (n *number) UnmarshalJSON(text []byte) error {
	*n = 0
	if bytes.HasPrefix(text, []byte("{")) {
		var long struct {
			Set, Infinite bool
			Number        json.Number
		}
		if err := json.Unmarshal(text, &long); err != nil {
			return err
		}
		if text = []byte(long.Number); !long.Set || long.Infinite {
			return nil
		}
	}
	said := strings.Trim(string(text), `"`)
	if said == "null" || said == "" {
		return nil
	}
	f, err := strconv.ParseFloat(said, 64)
	if err == nil && f > 0 && f < noValue {
		*n = number(f)
	}
	return err
}

// time returns the instant that n is; zero: none.
func (n number) time() time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(int64(n), 0).UTC()
}

// words are one or several, as in a state: a text in old versions, a list in young ones.
type words []string

// UnmarshalJSON implements [json.Unmarshaler].
func (w *words) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte(`"`)) {
		*w = words{""}
		return json.Unmarshal(text, &(*w)[0])
	}
	return json.Unmarshal(text, (*[]string)(w))
}

// has reports whether one of some words is there, in any case.
func (w words) has(wanted ...string) bool {
	return slices.ContainsFunc(w, func(s string) bool {
		return slices.ContainsFunc(wanted, func(of string) bool { return strings.EqualFold(s, of) })
	})
}

// A Job is what is read of one. An array whose tasks wait is one Job.
type Job struct {
	ID           number `json:"job_id"`
	Name         string `json:"name"`
	Account      string `json:"account"`
	User         string `json:"user_name"`
	Partition    string `json:"partition"`
	Comment      string `json:"comment"`
	AdminComment string `json:"admin_comment"`
	State        words  `json:"job_state"`
	Reason       string `json:"state_reason"`
	Flags        words  `json:"flags"`
	Reservation  string `json:"resv_name"`
	HetJob       number `json:"het_job_id"`
	ArrayTasks   string `json:"array_task_string"`
	Submit       number `json:"submit_time"`
	Eligible     number `json:"eligible_time"` // of what waits: its BeginTime
	Start        number `json:"start_time"`
	End          number `json:"end_time"`
	Deadline     number `json:"deadline"`   // by which it must have ended
	TimeLimit    number `json:"time_limit"` // minutes
	CPUs         number `json:"cpus"`
	Nodes        number `json:"node_count"`
	Tres         string `json:"tres_req_str"`
	Hosts        string `json:"nodes"` // where it runs
}

// Node is what is read of one.
type Node struct {
	Name        string   `json:"name"`
	CPUs        number   `json:"cpus"`
	AllocCPUs   number   `json:"alloc_cpus"`
	Memory      number   `json:"real_memory"` // MiB, as the next
	AllocMemory number   `json:"alloc_memory"`
	Tres        string   `json:"tres"`
	TresUsed    string   `json:"tres_used"`
	Features    words    `json:"features"`
	State       words    `json:"state"`
	StateFlags  words    `json:"state_flags"` // of old versions
	Partitions  []string `json:"partitions"`
}

// Usable reports whether a node takes work, or would once it is woken.
func (n *Node) Usable() bool {
	bad := []string{"down", "drain", "fail", "error", "future", "unknown", "not_responding", "maintenance"}
	return !n.State.has(bad...) && !n.StateFlags.has(bad...)
}

// gpus are what lists of nodes and jobs have where AccountingStorageTRES names it.
const gpus = "gres/gpu"

// tres returns an amount of a list as "cpu=4,mem=2G,gres/gpu=1"; 0: it is not there.
func tres(list, name string) int64 {
	for entry := range strings.SplitSeq(list, ",") {
		key, value, _ := strings.Cut(entry, "=")
		if key != name || value == "" {
			continue
		}
		const units = "KMGTP"
		digits := strings.TrimRight(value, units)
		unit := int64(1)
		if letter := value[len(digits):]; letter != "" {
			unit <<= 10 * (strings.Index(units, letter) + 1)
		}
		if f, err := strconv.ParseFloat(digits, 64); err == nil && f >= 0 && f*float64(unit) < 1<<62 {
			return int64(f * float64(unit))
		}
	}
	return 0
}
