package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubenergy/kubenergy/sched"
)

// submissionFields are what POST /ingest takes: the fields of KubEnergySched's jobs, by their names in Go, in any
// capitals, and in its trace sender's spelling; and ours.
type submissionFields struct {
	ID             text     // name of the Job
	CPURequirement *float64 // cores
	EnergyPriority *float64 // 0 speed alone to 1 energy alone
	CPU            *float64 `json:"cpu"`      // as CPURequirement
	Priority       *float64 `json:"priority"` // as EnergyPriority

	Namespace     string   `json:"namespace"`
	Image         string   `json:"image"`
	Command       []string `json:"command"`
	Memory        amount   `json:"memory"` // as "512Mi", or a number of MiB
	Duration      length   `json:"duration"`
	AllowedDelay  length   `json:"allowedDelay"`
	Strategy      string   `json:"strategy"`
	WorkloadClass string   `json:"workloadClass"`

	SubmitTime json.RawMessage `json:"submit_time"` // it is submitted now
}

// text is a text, or a number that stands for one.
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

// length is a Go duration, or a number of nanoseconds as Go writes durations in JSON.
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

// amount is an amount of memory.
type amount struct{ resource.Quantity }

// UnmarshalJSON implements [json.Unmarshaler].
func (a *amount) UnmarshalJSON(data []byte) error {
	var mebibytes float64
	if json.Unmarshal(data, &mebibytes) == nil {
		if !(mebibytes >= 0 && mebibytes <= maxMemory) {
			return fmt.Errorf("memory is %v MiB", mebibytes)
		}
		a.Quantity = *resource.NewQuantity(int64(mebibytes*(1<<20)), resource.BinarySI)
		return nil
	}
	var written string
	if err := json.Unmarshal(data, &written); err != nil {
		return err
	}
	// The parser of quantities counts exponents down one by one: 1e-999999999 would keep it busy for ever.
	if !memoryText.MatchString(written) {
		return fmt.Errorf("memory is %.40q: want an amount as 512Mi or 2G", written)
	}
	q, err := resource.ParseQuantity(written)
	if err != nil {
		return err
	}
	if q.Sign() < 0 || q.CmpInt64(maxMemory<<20) > 0 {
		return fmt.Errorf("memory is %s", written)
	}
	a.Quantity = q
	return nil
}

var memoryText = regexp.MustCompile(`^[0-9]{1,15}(\.[0-9]{1,6})?(k|M|G|T|Ki|Mi|Gi|Ti)?$`)

// What a submission may ask for.
const (
	maxCores      = 1024
	maxMemory     = 1 << 26 // MiB
	maxDuration   = 366 * 24 * time.Hour
	maxCommand    = 256
	maxArgument   = 4096
	maxImage      = 512
	usualDuration = time.Minute
)

// submission is a job that makes sense.
type submission struct {
	name, namespace, image, strategy, class string
	command                                 []string
	milliCPU                                int64
	memory                                  resource.Quantity
	duration, delay                         time.Duration
	energyPriority                          float64
	hasPriority                             bool
}

// readSubmission reads what POST /ingest was sent.
func readSubmission(data []byte) (*submission, error) {
	var f submissionFields
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return nil, fail(http.StatusBadRequest, "reading the job: %.200s", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fail(http.StatusBadRequest, "reading the job: there is something after it")
	}
	s := &submission{
		name: string(f.ID), namespace: f.Namespace, image: f.Image, strategy: f.Strategy, class: f.WorkloadClass,
		command: f.Command,
		memory:  f.Memory.Quantity, duration: time.Duration(f.Duration), delay: time.Duration(f.AllowedDelay),
	}
	cores, err := either("CPURequirement", f.CPURequirement, f.CPU)
	if err != nil {
		return nil, err
	}
	priority, err := either("EnergyPriority", f.EnergyPriority, f.Priority)
	if err != nil {
		return nil, err
	}
	if cores == nil || !(*cores > 0 && *cores <= maxCores) {
		return nil, fail(http.StatusUnprocessableEntity,
			"CPURequirement, or cpu: want more than 0 and at most %d cores", maxCores)
	}
	const milli = 1000
	s.milliCPU = int64(math.Ceil(*cores * milli))
	if priority != nil {
		if !(*priority >= 0 && *priority <= 1) {
			return nil, fail(http.StatusUnprocessableEntity,
				"EnergyPriority, or priority, is %v: want 0 (speed) to 1 (energy)", *priority)
		}
		s.energyPriority, s.hasPriority = *priority, true
	}
	return s, s.check()
}

// either returns the value of a field that has two names.
func either(name string, a, b *float64) (*float64, error) {
	switch {
	case a == nil:
		return b, nil
	case b == nil || *a == *b:
		return a, nil
	}
	return nil, fail(http.StatusUnprocessableEntity, "%s is there twice: %v and %v", name, *a, *b)
}

func (s *submission) check() error {
	for _, c := range []struct {
		what, text string
		may        func(string) []string
	}{
		{"ID", s.name, validation.IsDNS1123Label}, // the Job's pods are labelled with it
		{"namespace", s.namespace, optional(validation.IsDNS1123Label)},
		{"workloadClass", s.class, optional(validation.IsValidLabelValue)},
		{"image", s.image, optional(isImage)},
		{"strategy", s.strategy, optional(isStrategy)},
	} {
		if wrong := c.may(c.text); len(wrong) > 0 {
			return fail(http.StatusUnprocessableEntity, "%s is %.80q: %s", c.what, c.text, wrong[0])
		}
	}
	switch {
	case s.duration < 0 || s.duration > maxDuration, s.delay < 0 || s.delay > maxDuration:
		return fail(http.StatusUnprocessableEntity, "duration is %v, allowedDelay %v: want 0 to %v", s.duration,
			s.delay, maxDuration)
	case len(s.command) > maxCommand:
		return fail(http.StatusUnprocessableEntity, "command has %d parts: at most %d", len(s.command), maxCommand)
	}
	for i, argument := range s.command {
		if len(argument) > maxArgument || strings.ContainsRune(argument, 0) {
			return fail(http.StatusUnprocessableEntity, "part %d of command has %d bytes, or a zero in it: at most %d",
				i, len(argument), maxArgument)
		}
	}
	return nil
}

func optional(may func(string) []string) func(string) []string {
	return func(text string) []string {
		if text == "" {
			return nil
		}
		return may(text)
	}
}

func isImage(name string) []string {
	if len(name) > maxImage || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return []string{"want the name of an image, of at most " + strconv.Itoa(maxImage) + " bytes"}
	}
	return nil
}

func isStrategy(name string) []string {
	if _, err := sched.New(name); err != nil {
		return []string{err.Error()}
	}
	return nil
}
