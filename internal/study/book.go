package study

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/kubenergy/kubenergy/internal/document"
	"github.com/kubenergy/kubenergy/internal/report"
)

// Book describes the trials in a results directory, so that shards can be merged without their inputs.
type Book struct {
	Digest   string              `json:"digest"`
	Options  report.SweepOptions `json:"options"`
	Manifest report.Manifest     `json:"manifest"`
	Planned  []*Planned          `json:"planned"`
}

const bookName = "plan.json"

// Write writes the book into a results directory.
func (b *Book) Write(dir string) error {
	text, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("writing the plan: %w", err)
	}
	return writeResult(filepath.Join(dir, bookName), append(text, '\n'))
}

// Book returns the description of the study. program is the version of the program.
func (c *Study) Book(program string, commandLine []string) *Book {
	b := &Book{Digest: c.digest, Manifest: c.manifest(program, commandLine), Options: c.options()}
	for _, t := range c.trials {
		b.Planned = append(b.Planned, &Planned{Key: t.Key, Trial: t.Trial.Name(), Tail: t.Tail})
	}
	return b
}

func (c *Study) manifest(program string, commandLine []string) report.Manifest {
	options := c.options()
	m := report.Manifest{
		APIVersion: document.APIVersion, Kind: "ComparisonManifest", Program: program, Go: runtime.Version(),
		Platform:    runtime.GOOS + "/" + runtime.GOARCH,
		CommandLine: commandLine, Comparison: c.digest, Inputs: c.inputs,
		Seed: c.file.BootstrapSeed, Seeds: c.file.Seeds,
		Split: report.Split{Quoted: cmp.Or(options.Quote, report.QuoteAll), Starts: []int{}, Others: []int{}},
	}
	for _, i := range c.file.indices {
		if options.Quotes(i) {
			m.Split.Starts = append(m.Split.Starts, i)
		} else {
			m.Split.Others = append(m.Split.Others, i)
		}
	}
	return m
}

// Sum aggregates trials.
func (b *Book) Sum(planned []*Planned) (*report.Sweep, error) {
	trials := make([]report.Trial, len(planned))
	for i, p := range planned {
		trials[i] = p.Trial
		if p.Tail != nil {
			trials[i].Extend(p.Tail)
		}
	}
	return report.NewSweep(trials, b.Options)
}

// ReadParts reads the trials of one study from several directories.
func ReadParts(dirs []string) (*Book, []*Planned, error) {
	var book *Book
	done, tails := map[string]report.Trial{}, map[string]*report.Consumption{}
	damaged := 0
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(dir, bookName))
		if err != nil {
			return nil, nil, fmt.Errorf("%s is not a results directory: %w", dir, err)
		}
		b := new(Book)
		if err := json.Unmarshal(text, b); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", filepath.Join(dir, bookName), err)
		}
		if book != nil && b.Digest != book.Digest {
			return nil, nil, fmt.Errorf("%s and %s belong to different comparisons or were created by other builds",
				dirs[0], dir)
		}
		for _, p := range b.Planned {
			if p.Tail != nil {
				tails[p.Key] = p.Tail
			}
		}
		book = cmp.Or(book, b)
		trials, unread, err := ReadTrials(dir)
		if err != nil {
			return nil, nil, err
		}
		maps.Copy(done, trials)
		damaged += unread
	}
	var missing []string
	for _, p := range book.Planned {
		trial, ok := done[p.Key]
		if !ok {
			missing = append(missing, p.Trial.ID())
		}
		p.Trial.TakeFigures(&trial)
		p.Tail = tails[p.Key]
	}
	if len(missing) > 0 {
		const some = 3
		return nil, nil, fmt.Errorf("%d of %d trials are missing (%d damaged lines), e.g. %s: run their shards again",
			len(missing), len(book.Planned), damaged, strings.Join(missing[:min(some, len(missing))], "; "))
	}
	return book, book.Planned, nil
}
