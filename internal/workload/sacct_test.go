package workload_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/workload"
)

// sacctText is constructed after the output of sacct --parsable2 of Slurm 20.11 and 23.11.
const sacctText = `JobID|JobName|User|Partition|Submit|Start|End|Elapsed|Timelimit|AllocCPUS|NNodes|ReqMem|AllocTRES|State
101|a|ann|cpu|2026-06-01T10:00:00|2026-06-01T10:00:05|2026-06-02T12:03:09|1-02:03:04|2-00:00:00|16|2|4Gc||COMPLETED
101.batch|batch|||2026-06-01T10:00:05|2026-06-01T10:00:05|2026-06-02T12:03:09|1-02:03:04||16|2|4Gc||COMPLETED
101.extern|extern|||2026-06-01T10:00:05|2026-06-01T10:00:05|2026-06-02T12:03:09|1-02:03:04||16|2|||COMPLETED
102_4|b|bob|gpu|2026-10-25T04:30:00|2026-10-25T05:00:00|2026-10-25T05:10:00|00:10:00|UNLIMITED|8|1|0n|billing=8,cpu=8,gres/gpu:a100=2,mem=62.50G,node=1|TIMEOUT
102_[5-9%2]|b|bob|gpu|2026-10-25T02:30:00|Unknown|Unknown|00:00:00|01:00:00|0|1|0n||PENDING
103+0|c|bob|cpu|2026-06-02T00:00:00|2026-06-02T00:00:00|2026-06-02T00:00:01|00:00:01|Partition_Limit|1|2|2000Mn||FAILED
104|d|bob|cpu|2026-06-02T00:00:00|None|2026-06-02T00:05:00|00:00:00|01:00:00|1|1|2G||CANCELLED by 1000
105|e|bob|cpu|2026-06-02T00:00:00|2026-06-02T01:00:00|Unknown|05:00:00|01:00:00|1|1|2G||RUNNING
106|f|bob|cpu|Unknown|2026-06-02T01:00:00|2026-06-02T02:00:00|01:00:00|01:00:00|1|1|2G||COMPLETED
107|g|bob|cpu|2026-06-02T00:00:00|2026-06-02T01:00:00|2026-06-02T02:00:00|01:00:00|01:00:00|0|1|2G||NODE_FAIL
`

func TestReadSacct(t *testing.T) {
	want := &workload.Trace{
		Format: "sacct", Dated: true, Jobs: []sched.Job{
			{
				ID: "101", Owner: "ann", Queue: "cpu", AllowedDelay: workload.NoDelayGiven,
				Submitted: time.Date(2026, 6, 1, 8, 0, 0, 0, time.UTC), Duration: 26*time.Hour + 184*time.Second,
				TimeLimit: 48 * time.Hour, Request: sched.Resources{MilliCPU: 16000, Memory: 64 << 30},
			},
			{
				ID: "103+0", Owner: "bob", Queue: "cpu", AllowedDelay: workload.NoDelayGiven,
				Submitted: time.Date(2026, 6, 1, 22, 0, 0, 0, time.UTC), Duration: time.Second,
				Request: sched.Resources{MilliCPU: 1000, Memory: 4000 << 20},
			},
			{
				ID: "102_4", Owner: "bob", Queue: "gpu", AllowedDelay: workload.NoDelayGiven,
				Submitted: time.Date(2026, 10, 25, 3, 30, 0, 0, time.UTC), Duration: 10 * time.Minute,
				Request: sched.Resources{MilliCPU: 8000, Memory: 125 << 29, GPU: 2},
			},
		},
		Skipped: []workload.Skipped{
			{Why: "is a step of a job", Count: 2},
			{Why: "has not finished", Count: 2},
			{Why: "did not run or has no run time", Count: 1},
			{Why: "has no submission time", Count: 1},
			{Why: "has no number of processors", Count: 1},
		},
	}
	for name, text := range map[string]string{
		"parsable2":        sacctText,
		"parsable":         strings.ReplaceAll(sacctText, "\n", "|\n"),
		"tabs":             strings.ReplaceAll(sacctText, "|", "\t"),
		"carriage returns": "\xef\xbb\xbf" + strings.ReplaceAll(sacctText, "\n", "\r\n"),
		"other case":       strings.Replace(sacctText, "JobID|JobName", "jobidraw|jobname", 1),
		"comment":          "# constructed\n\n" + sacctText,
	} {
		for _, format := range []string{"", "sacct"} {
			got, err := workload.LoadWith(write(t, text), workload.Options{Format: format, Start: t0, Zone: "Europe/Berlin"})
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s, format %q: error %v, unexpected trace (-want +got):\n%s", name, format, err, diff)
			}
		}
	}
}

func TestReadSacctColumns(t *testing.T) {
	const submit = 1780300800 // 2026-06-01T08:00:00Z
	for name, text := range map[string]string{
		"Unix seconds":      fmt.Sprintf("JobID|Submit|ElapsedRaw|NCPUS\n7|%d|90|2\n", submit),
		"offset":            "State|NCPUS|Elapsed|Submit|JobID\nCANCELLED by 5|2|01:30|2026-06-01T10:00:00+0200|7\n",
		"RFC 3339":          "JobIDRaw|Submit|Elapsed|ReqCPUS|AllocCPUS\n7|2026-06-01T08:00:00Z|00:01:30|2|0\n",
		"no elapsed":        "JobID|Submit|Start|End|AllocTRES\n7|1780300800|1780300900|1780300990|cpu=2,node=1\n",
		"elapsed, no start": "JobID|Submit|End|Elapsed|NCPUS\n7|1780300800|1780300990|00:01:30|2\n",
	} {
		got, err := read(write(t, text), "", t0)
		want := []sched.Job{{
			ID: "7", Submitted: time.Unix(submit, 0).UTC(), Duration: 90 * time.Second,
			AllowedDelay: workload.NoDelayGiven, Request: sched.Resources{MilliCPU: 2000},
		}}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: error %v, unexpected jobs (-want +got):\n%s", name, err, diff)
		}
	}
	for name, c := range map[string]struct{ text, zone, want string }{
		"local time": {
			"JobID|Submit|Elapsed|NCPUS\n7|2026-06-01T10:00:00|00:01:30|2\n", "",
			`workload.csv:2: submit: "2026-06-01T10:00:00" has no time zone: set --time-zone`,
		},
		"skipped time": {
			"JobID|Submit|Elapsed|NCPUS\n7|2026-03-29T02:30:00|00:01:30|2\n", "Europe/Berlin",
			`"2026-03-29T02:30:00" does not exist in Europe/Berlin`,
		},
		"no submission": {"JobID|Elapsed|NCPUS\n7|00:01:30|2\n", "", `column "submit" is missing`},
		"fixed width": {
			"       JobID              Submit\n------------ -------------------\n", "",
			`column "jobid" is missing: want jobid, submit, and optionally elapsed, alloccpus, reqmem, timelimit, state, user, partition (want the output of sacct --parsable2`,
		},
		"separator in a name": {
			"JobID|JobName|Submit\n7|a|b|1780300800\n", "",
			`workload.csv:2: the row has 4 fields: want 3, as in the header`,
		},
		"same ID":   {"JobID|Submit|Elapsed|NCPUS\n7|1780300800|1|1\n7|1780300800|1|1\n", "", `"7" is used twice`},
		"date":      {"JobID|Submit\n7|yesterday\n", "", `workload.csv:2: submit: "yesterday": want a time such as 2026-`},
		"elapsed":   {"JobID|Submit|Elapsed\n7|1780300800|1:2:3:4:5\n", "", `elapsed: "1:2:3:4:5": want [days-]hours:min`},
		"centuries": {"JobID|Submit|Elapsed\n7|1780300800|36000-99999:00:00\n", "", `elapsed: "36000-`},
		"memory":    {"JobID|Submit|NCPUS|ReqMem\n7|1780300800|1|4Xc\n", "", `reqmem: "4X": want bytes`},
		"memory of all nodes": {
			"JobID|Submit|NCPUS|NNodes|ReqMem\n7|1780300800|1|1024|2000Tn\n", "",
			`reqmem: 1024 times "2000Ti" is more than`,
		},
		"GPUs":             {"JobID|Submit|AllocTRES\n7|1780300800|gres/gpu=x\n", "", `alloctres: "x": want a whole`},
		"before the start": {"JobID|Submit\n7|1\n", "", "submit: 1970-01-01T00:00:01Z is before the start"},
		"unknown zone":     {sacctText, "CEST", `unknown time zone "CEST": want a name such as`},
	} {
		_, err := workload.LoadWith(write(t, c.text), workload.Options{Start: t0, Zone: c.zone})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: expected an error that contains %[3]q, got %[2]v", name, err, c.want)
		}
	}
}

// In the hour that occurs twice, the first occurrence is assumed unless a job would end before its start.
func TestReadSacctRepeatedHour(t *testing.T) {
	text := "JobID|Submit|Start|End|NCPUS\n" +
		"1|2026-10-25T01:00:00|2026-10-25T01:50:00|2026-10-25T02:10:00|1\n" + // or 80 minutes
		"2|2026-10-25T01:00:00|2026-10-25T02:50:00|2026-10-25T02:10:00|1\n" +
		"3|2026-10-25T01:00:00|2026-10-25T03:50:00|2026-10-25T04:10:00|1\n"
	got, err := workload.LoadWith(write(t, text), workload.Options{Start: t0, Zone: "Europe/Berlin"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range got.Jobs {
		if d := got.Jobs[i].Duration; d != 20*time.Minute {
			t.Errorf("job %s takes %v, want 20m", got.Jobs[i].ID, d)
		}
	}
	if notes := strings.Join(got.LeftOut(), "\n"); !strings.Contains(notes, "ambiguous local times of 2 jobs") {
		t.Errorf("notes: %q", notes)
	}
}

// Numbers without a unit are seconds and bytes, and absolute times set the start.
func TestUnlikelyNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"id,submit_time,duration,cpu,memory,allowed_delay\n1,2026-06-01T08:00:00Z,240,1,8,12\n": "at most 8 bytes of memory" +
			": is a unit such as Gi missing?; all allowed delays are at most 12s: is a unit such as h missing?",
		"id,submit_time,duration,cpu,memory,allowed_delay\n1,0,240m,1,8Gi,12h\n": "",
	} {
		got, err := workload.LoadWith(write(t, text), workload.Options{Start: t0})
		if err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(got.LeftOut(), "; "); !strings.HasSuffix(notes, want) || want == "" && notes != "" {
			t.Errorf("notes: %q, want %q", notes, want)
		}
		if absolute := want != ""; got.Dated != absolute {
			t.Errorf("dated: %v, want %v", got.Dated, absolute)
		}
	}
}

func FuzzReadSacct(f *testing.F) {
	f.Add([]byte(sacctText))
	f.Add([]byte("JobID|Submit|ElapsedRaw|NCPUS|ReqMem\n7|1780300800|90|2|1e3Pc\n"))
	f.Add([]byte("JobID\tSubmit\tStart\tEnd\tAllocTRES\n7\t1\t2\t3\tcpu=2,gres/gpu:a=1\n"))
	fuzzRead(f, "sacct")
}
