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

// Store is a folder of results, in which an interrupted comparison finds what it has done already: files of one
// line of JSON for each trial, each with the hash of what the trial depends on and a checksum of its own. Lines that
// are damaged, such as the last one after a crash, count as missing. A store without a folder keeps nothing.
type Store struct {
	Damaged int // lines that could not be read

	dir  string
	own  string // the file that this process writes
	done map[string]report.Trial

	mu   sync.Mutex
	file *os.File
}

// storedTrial is a line.
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

// OpenStore reads what is there. dir "": there is no folder.
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
		return nil, fmt.Errorf("opening the results folder: %w", err)
	}
	var err error
	if s.done, s.Damaged, err = ReadTrials(dir); err != nil {
		return nil, err
	}
	// A last line without an end is damaged; what is written now must not become part of it.
	const flags = os.O_APPEND | os.O_CREATE | os.O_RDWR
	//nolint:gosec // results are for all who may read the folder
	if s.file, err = os.OpenFile(s.own, flags, 0o644); err != nil {
		return nil, fmt.Errorf("opening the results folder: %w", err)
	}
	return s, s.endLine()
}

// Keep writes all trials of a study into a folder.
func Keep(dir string, planned []*Planned) error {
	s, err := OpenStore(dir, Shard{Count: 1})
	if err != nil {
		return err
	}
	return s.close(planned, true)
}

func (s *Store) endLine() error {
	size, err := s.file.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := s.file.ReadAt(last, size-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = s.file.WriteString("\n")
	return err
}

// ReadTrials returns the trials that a folder of results holds, by their keys, and how many lines are damaged.
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

// keep writes a trial down at once.
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

// close ends the store. If all is done, its file is put in order, so that the same comparison gives the same bytes:
// first its trials, then those of other settings, which may be asked for again.
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
		_, _ = b.Write(line) // a buffer never fails
	}
	return writeResult(s.own, b.Bytes())
}

// writeResult replaces a file in one step, so that it is never half-written.
func writeResult(path string, content []byte) error {
	if err := renameio.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	return nil
}
