package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// submissionFields is the request body of POST /ingest. It contains the fields of KubEnergySched's jobs under their
// Go names, which are matched case-insensitively, the field names of its trace sender, and additional fields of
// KubEnergy.
type submissionFields struct {
	ID             text     // name of the Job
	CPURequirement *float64 // cores
	EnergyPriority *float64 // from 0 (minimize run time) to 1 (minimize energy)
	CPU            *float64 `json:"cpu"`      // alias of CPURequirement
	Priority       *float64 `json:"priority"` // alias of EnergyPriority

	Namespace     string   `json:"namespace"`
	Image         string   `json:"image"`
	Command       []string `json:"command"`
	Memory        amount   `json:"memory"` // a quantity such as "512Mi", or a number in MiB
	Duration      length   `json:"duration"`
	AllowedDelay  length   `json:"allowedDelay"`
	Strategy      string   `json:"strategy"`
	WorkloadClass string   `json:"workloadClass"`
	Backend       string   `json:"backend"` // kubernetes, slurm or any

	SubmitTime json.RawMessage `json:"submit_time"` // ignored
}

// text is a string that can also be given as a JSON number.
type text string

// UnmarshalJSON implements [json.Unmarshaler].
func (t *text) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, (*string)(t))
	}
	var n json.Number
	if err := json.Unmarshal(data, &n); err != nil {
		return err
	}
	*t = text(n)
	return nil
}

// length is a duration in Go syntax, or a number of nanoseconds, which is how Go encodes durations in JSON.
type length time.Duration

// UnmarshalJSON implements [json.Unmarshaler].
func (l *length) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var written string
		if err := json.Unmarshal(data, &written); err != nil {
			return err
		}
		d, err := time.ParseDuration(written)
		*l = length(d)
		return err
	}
	return json.Unmarshal(data, (*int64)(l))
}

// amount is an amount of memory, given as a quantity or as a number of MiB.
type amount struct{ resource.Quantity }

// UnmarshalJSON implements [json.Unmarshaler].
func (a *amount) UnmarshalJSON(data []byte) error {
	var mebibytes float64
	if json.Unmarshal(data, &mebibytes) == nil {
		if !(mebibytes >= 0 && mebibytes <= maxMemory) {
			return fmt.Errorf("memory is out of range: %v MiB", mebibytes)
		}
		a.Quantity = *resource.NewQuantity(int64(mebibytes*(1<<20)), resource.BinarySI)
		return nil
	}
	var written string
	if err := json.Unmarshal(data, &written); err != nil {
		return err
	}
	q, err := kube.ParseQuantity(written)
	if err != nil || q.CmpInt64(maxMemory<<20) > 0 || q.CmpInt64(q.Value()) != 0 ||
		q.Format == resource.DecimalExponent {
		return fmt.Errorf("memory is %.40q: want a number of bytes such as 512Mi or 2G", written)
	}
	a.Quantity = q
	return nil
}

// Limits and defaults of a submission.
const (
	maxCores      = 1024
	maxMemory     = 1 << 26 // MiB
	maxDuration   = 366 * 24 * time.Hour
	maxCommand    = 256
	maxArgument   = 4096
	maxImage      = 512
	usualDuration = time.Minute
)

// readSubmission parses and validates the body of POST /ingest. In the result, CPURequirement is set and the
// aliases are nil.
func readSubmission(data []byte) (*submissionFields, error) {
	f := &submissionFields{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(f); err != nil {
		return nil, fail(http.StatusBadRequest, "reading the job: %.200s", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fail(http.StatusBadRequest, "reading the job: unexpected data after the job")
	}
	for _, alias := range []struct {
		name       string
		own, other **float64
	}{{"CPURequirement", &f.CPURequirement, &f.CPU}, {"EnergyPriority", &f.EnergyPriority, &f.Priority}} {
		if a, b := *alias.own, *alias.other; a != nil && b != nil && *a != *b {
			return nil, unfit("%s is given twice with different values: %v and %v", alias.name, *a, *b)
		}
		*alias.own, *alias.other = cmp.Or(*alias.own, *alias.other), nil
	}
	return f, cmp.Or(f.checkNumbers(), f.checkTexts())
}

// unfit returns an error with status 422 for a submission that is well-formed but invalid.
func unfit(format string, args ...any) error {
	return fail(http.StatusUnprocessableEntity, format, args...)
}

func (f *submissionFields) checkNumbers() error {
	if cores := f.CPURequirement; cores == nil || !(*cores > 0 && *cores <= maxCores) {
		return unfit("CPURequirement (or cpu): want more than 0 and at most %d cores", maxCores)
	}
	if priority := f.EnergyPriority; priority != nil && !(*priority >= 0 && *priority <= 1) {
		return unfit("EnergyPriority (or priority) is %v: want 0 (speed) to 1 (energy)", *priority)
	}
	duration, delay := time.Duration(f.Duration), time.Duration(f.AllowedDelay)
	if min(duration, delay) < 0 || max(duration, delay) > maxDuration {
		return unfit("duration is %v and allowedDelay is %v: want 0 to %v", duration, delay, maxDuration)
	}
	return nil
}

func (f *submissionFields) checkTexts() error {
	for _, c := range []struct {
		what, text string
		may        func(string) []string
	}{
		{"ID", string(f.ID), validation.IsDNS1123Label}, // used as a label value of the Job's pods
		{"namespace", f.Namespace, validation.IsDNS1123Label},
		{"workloadClass", f.WorkloadClass, validation.IsValidLabelValue},
		{"image", f.Image, isImage},
		{"strategy", f.Strategy, isStrategy},
		{"backend", f.Backend, isBackend},
	} {
		if c.text == "" && c.what != "ID" {
			continue
		}
		if wrong := c.may(c.text); len(wrong) > 0 {
			return unfit("%s is %.80q: %s", c.what, c.text, wrong[0])
		}
	}
	if len(f.Command) > maxCommand {
		return unfit("command has %d arguments, want at most %d", len(f.Command), maxCommand)
	}
	for i, argument := range f.Command {
		if len(argument) > maxArgument || strings.ContainsRune(argument, 0) {
			return unfit("argument %d of command has %d bytes or contains a NUL byte, want at most %d bytes", i,
				len(argument), maxArgument)
		}
	}
	return nil
}

// slurmOwn matches the names that kubenergy-slurm uses for jobs that were submitted directly to Slurm.
var slurmOwn = regexp.MustCompile(`^slurm-[0-9]+$`)

// checkWorld validates the backend of a submission. If worlds is false, only Kubernetes is available.
func (f *submissionFields) checkWorld(worlds bool) error {
	switch b := f.Backend; {
	case !worlds && b != "" && b != Kubernetes:
		return unfit("backend is %.80q: want kubernetes, other backends require kubenergy-slurm", b)
	case worlds && slurmOwn.MatchString(string(f.ID)):
		return unfit("ID is %.80q: this format is reserved for jobs that were submitted directly to Slurm", f.ID)
	case b == Slurm && f.Image != "" && len(f.Command) == 0:
		return unfit("backend is slurm, which does not support images: want a command")
	}
	return nil
}

func isBackend(name string) []string {
	if name != Kubernetes && name != Slurm && name != AnyBackend {
		return []string{"want " + Kubernetes + ", " + Slurm + " or " + AnyBackend}
	}
	return nil
}

func isImage(name string) []string {
	if len(name) > maxImage || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return []string{"want an image name of at most " + strconv.Itoa(maxImage) + " bytes"}
	}
	return nil
}

func isStrategy(name string) []string {
	if _, err := strategy.New(name); err != nil {
		return []string{err.Error()}
	}
	return nil
}
