package study

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/google/renameio/v2"

	"github.com/kubenergy/kubenergy/internal/report"
)

// Store is a results directory, from which an interrupted comparison continues. Its files contain one line of JSON
// per trial, with the hash of the trial's dependencies and a checksum. Damaged lines, such as an incomplete last
// line after a crash, are ignored. A store without a directory does not store trials.
type Store struct {
	Damaged int // number of damaged lines

	dir  string
	own  string // name of the file that this process writes
	done map[string]report.Trial

	mu   sync.Mutex
	file *os.File
}

// storedTrial is a line of a file.
type storedTrial struct {
	Key   string          `json:"key"`
	Sum   string          `json:"sum"`
	Trial json.RawMessage `json:"trial"`
}

func (s *storedTrial) checksum() string {
	h := sha256.New()
	_, _ = io.WriteString(h, s.Key) // a hash never fails
	_, _ = h.Write(s.Trial)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// OpenStore reads the stored trials. If dir is empty, the store has no directory.
func OpenStore(dir string, part Shard) (*Store, error) {
	s := &Store{dir: dir}
	if dir == "" {
		return s, nil
	}
	name := "trials.jsonl"
	if part.Count > 1 {
		name = fmt.Sprintf("trials-%d-of-%d.jsonl", part.Index, part.Count)
	}
	s.own = filepath.Join(dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("opening the results directory: %w", err)
	}
	var err error
	if s.done, s.Damaged, err = ReadTrials(dir); err != nil {
		return nil, err
	}
	// An incomplete last line is damaged, and the next line must not be appended to it.
	const flags = os.O_APPEND | os.O_CREATE | os.O_WRONLY
	//nolint:gosec // results are for all who may read the folder
	if s.file, err = os.OpenFile(s.own, flags, 0o644); err != nil {
		return nil, fmt.Errorf("opening the results directory: %w", err)
	}
	_, err = s.file.WriteString("\n") // ends a line that was interrupted; empty lines are ignored
	return s, err
}

// Keep writes all trials of a study into a directory.
func Keep(dir string, planned []*Planned) error {
	s, err := OpenStore(dir, Shard{Count: 1})
	if err != nil {
		return err
	}
	return s.close(planned, true)
}

// ReadTrials returns the trials in a results directory by key, and the number of damaged lines.
func ReadTrials(dir string) (trials map[string]report.Trial, damaged int, err error) {
	trials = map[string]report.Trial{}
	paths, err := filepath.Glob(filepath.Join(dir, "trials*.jsonl"))
	for _, path := range paths {
		text, failed := os.ReadFile(path)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("reading earlier results: %w", failed))
		}
		for text := range bytes.Lines(text) {
			if text = bytes.TrimSpace(text); len(text) == 0 {
				continue
			}
			var line storedTrial
			var t report.Trial
			if json.Unmarshal(text, &line) != nil || line.Sum != line.checksum() ||
				json.Unmarshal(line.Trial, &t) != nil {
				damaged++
				continue
			}
			trials[line.Key] = t
		}
	}
	return trials, damaged, err
}

func encodeTrial(key string, t *report.Trial) ([]byte, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("writing the trial %s: %w", t.ID(), err)
	}
	line := storedTrial{Key: key, Trial: text}
	line.Sum = line.checksum()
	out, err := json.Marshal(&line)
	return append(out, '\n'), err
}

// keep appends a trial to the file.
func (s *Store) keep(p *Planned) error {
	if s.file == nil {
		return nil
	}
	line, err := encodeTrial(p.Key, &p.Trial)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.file.Write(line); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	return nil
}

// close closes the store. If all trials are complete, it sorts the file, so that the same comparison results in the
// same bytes. Its own trials come first, followed by those with other settings, which may be needed again.
func (s *Store) close(planned []*Planned, complete bool) error {
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	if err != nil || !complete {
		return err
	}
	all := slices.Clone(planned)
	for _, p := range planned {
		delete(s.done, p.Key)
	}
	for _, key := range slices.Sorted(maps.Keys(s.done)) {
		all = append(all, &Planned{Key: key, Trial: s.done[key]})
	}
	var b bytes.Buffer
	for _, p := range all {
		line, err := encodeTrial(p.Key, &p.Trial)
		if err != nil {
			return err
		}
		_, _ = b.Write(line) // a bytes.Buffer never fails
	}
	return writeResult(s.own, b.Bytes())
}

// writeResult replaces a file atomically.
func writeResult(path string, content []byte) error {
	if err := renameio.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	return nil
}
