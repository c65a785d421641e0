package study

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/google/renameio/v2"

	"github.com/kubenergy/kubenergy/report"
)

// Store is a folder of results, in which an interrupted comparison finds what it has done already: files of one
// line of JSON for each trial, each with the hash of what the trial depends on and a checksum of its own. Lines that
// are damaged, such as the last one after a crash, count as missing. The nil store keeps nothing.
type Store struct {
	dir     string
	own     string // the file that this process writes
	done    map[string]report.Trial
	damaged int

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

// OpenStore reads what is there. dir "": there is no store.
func OpenStore(dir string, part Shard) (*Store, error) {
	if dir == "" {
		return nil, nil
	}
	name := "trials.jsonl"
	if part.Count > 1 {
		name = fmt.Sprintf("trials-%d-of-%d.jsonl", part.Index, part.Count)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("opening the results folder: %w", err)
	}
	s := &Store{dir: dir, own: filepath.Join(dir, name), done: map[string]report.Trial{}}
	if err := s.readAll(dir); err != nil {
		return nil, err
	}
	var err error
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

// ReadTrials returns the trials that a folder of results holds, by their keys.
func ReadTrials(dir string) (map[string]report.Trial, error) {
	s := &Store{done: map[string]report.Trial{}}
	return s.done, s.readAll(dir)
}

// Damaged counts lines that could not be read.
func (s *Store) Damaged() int {
	if s == nil {
		return 0
	}
	return s.damaged
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

// maxTrialLine is far above what a trial takes.
const maxTrialLine = 4 << 20

func (s *Store) readAll(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "trials*.jsonl"))
	for _, path := range paths {
		err = errors.Join(err, s.read(path))
	}
	return err
}

func (s *Store) read(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading earlier results: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxTrialLine)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var line storedTrial
		var t report.Trial
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Sum != line.checksum() ||
			json.Unmarshal(line.Trial, &t) != nil {
			s.damaged++
			continue
		}
		s.done[line.Key] = t
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		s.damaged++ // and what follows is done again
	} else if err != nil {
		return fmt.Errorf("reading earlier results: %w", err)
	}
	return nil
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

// find returns a trial that was run before.
func (s *Store) find(key string) (t report.Trial, ok bool) {
	if s == nil {
		return t, false
	}
	t, ok = s.done[key]
	return t, ok
}

// keep writes a trial down at once.
func (s *Store) keep(key string, t *report.Trial) error {
	if s == nil {
		return nil
	}
	line, err := encodeTrial(key, t)
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

// close ends the store. If all is done, its file is put in order, so that the same comparison gives the same bytes.
func (s *Store) close(planned []*Planned, complete bool) error {
	if s == nil {
		return nil
	}
	err := s.file.Close()
	if err != nil || !complete {
		return err
	}
	var b bytes.Buffer
	written := map[string]bool{}
	for _, p := range planned {
		line, err := encodeTrial(p.Key, &p.Trial)
		if err != nil {
			return err
		}
		_, _ = b.Write(line) // a buffer never fails
		written[p.Key] = true
	}
	var others []string // of other settings, which may be asked for again
	for key := range s.done {
		if !written[key] {
			others = append(others, key)
		}
	}
	slices.Sort(others)
	for _, key := range others {
		t := s.done[key]
		line, err := encodeTrial(key, &t)
		if err != nil {
			return err
		}
		_, _ = b.Write(line)
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
