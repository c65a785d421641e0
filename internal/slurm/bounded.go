package slurm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Limits of a response. 100,000 jobs use about 65 MiB of memory, and a response at the limits about 350 MiB.
const (
	maxEntries = 250_000   // jobs or nodes
	maxValue   = 1 << 20   // size in bytes of a job or node, or of another field of the response
	maxText    = 256 << 20 // total size in bytes of all retained strings
)

// list decodes the next value, which is a list with many entries, entry by entry.
type list func(*bounded) error

// listOf returns a list that appends its entries to all. size returns the size in bytes of the strings of an entry.
func listOf[T any](key string, all *[]T, size func(*T) int) list {
	text := 0
	return func(b *bounded) error {
		return b.each('[', func() error {
			var entry T
			if err := b.Decode(&entry); err != nil {
				return err
			}
			*all = append(*all, entry)
			if text += size(&entry); text > maxText || len(*all) > maxEntries {
				return fmt.Errorf("the first %d %s have %d MiB of text, want at most %d with %d MiB", len(*all), key,
					text>>20, maxEntries, maxText>>20)
			}
			return nil
		})
	}
}

// bounded is a JSON decoder that limits the size of values.
type bounded struct {
	*json.Decoder
	from io.Reader
	read int64
}

var errLarge = fmt.Errorf("a value is larger than %d KiB", maxValue>>10)

// Read implements [io.Reader]. The decoder does not read beyond the end of the current value.
func (b *bounded) Read(p []byte) (n int, err error) {
	left := b.InputOffset() + maxValue - b.read
	if left <= 0 {
		return 0, errLarge
	}
	n, err = b.from.Read(p[:min(int64(len(p)), left)])
	b.read += int64(n)
	return n, err
}

// readAnswer decodes the fields of a response by key into pointers and [list]s, and skips all other fields. It also
// returns the start of the response for error messages.
func readAnswer(body io.Reader, fields map[string]any) (start []byte, err error) {
	const shown = 300
	buffered := bufio.NewReader(body)
	start, _ = buffered.Peek(shown)
	start = bytes.Clone(start) // the buffer is reused
	b := &bounded{from: buffered}
	b.Decoder = json.NewDecoder(b)
	return start, b.each('{', func() error {
		key, err := b.Token()
		if err != nil {
			return err
		}
		switch into := fields[key.(string)].(type) {
		case nil:
			return b.Decode(&json.RawMessage{})
		case list:
			return into(b)
		default:
			return b.Decode(into)
		}
	})
}

// each calls next for each key of an object or for each entry of a list. It treats null as empty.
func (b *bounded) each(open json.Delim, next func() error) error {
	first, err := b.Token()
	switch {
	case err != nil || first == nil:
		return err
	case first != open:
		return fmt.Errorf("want %v, have %v", open, first)
	}
	for b.More() {
		if err := next(); err != nil {
			return err
		}
	}
	_, err = b.Token() // the decoder verifies the closing delimiter
	return err
}

func sizeOf(texts ...string) (n int) {
	const header = 16
	for _, s := range texts {
		n += header + len(s)
	}
	return n
}

func (j *Job) size() int {
	return sizeOf(j.Name, j.Account, j.User, j.Partition, j.Comment, j.AdminComment, j.Reason, j.Reservation,
		j.ArrayTasks, j.Tres, j.Hosts) + sizeOf(j.State...) + sizeOf(j.Flags...)
}

func (n *Node) size() int {
	return sizeOf(n.Name, n.Tres, n.TresUsed) + sizeOf(n.Features...) + sizeOf(n.State...) + sizeOf(n.StateFlags...) +
		sizeOf(n.Partitions...)
}
