package slurm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Limits of one answer. 100,000 jobs take about 65 MiB here, an answer at its limits about 350 MiB.
const (
	maxEntries = 250_000   // jobs, or nodes
	maxValue   = 1 << 20   // bytes of one job or node, or of another field of the answer
	maxText    = 256 << 20 // bytes of all texts that are kept
)

// list is a field of an answer with many entries, which are decoded one by one.
type list struct {
	key    string
	decode func(*json.Decoder) error // of the next entry
}

// listOf returns a list that is decoded into all. Size returns the bytes of the texts of an entry.
func listOf[T any](key string, all *[]T, size func(*T) int) *list {
	text := 0
	return &list{key, func(d *json.Decoder) error {
		var entry T
		if err := d.Decode(&entry); err != nil {
			return err
		}
		*all = append(*all, entry)
		if text += size(&entry); text > maxText || len(*all) > maxEntries {
			return fmt.Errorf("the first %d %s have %d MiB of text, want at most %d, and %d MiB", len(*all), key,
				text>>20, maxEntries, maxText>>20)
		}
		return nil
	}}
}

// bounded is a reader of JSON whose values are of bounded size.
type bounded struct {
	*json.Decoder
	from io.Reader
	read int64
}

var errLarge = fmt.Errorf("a value is larger than %d KiB", maxValue>>10)

// Read implements [io.Reader]. The decoder reads only what it needs to end the value that it is at.
func (b *bounded) Read(p []byte) (n int, err error) {
	left := b.InputOffset() + maxValue - b.read
	if left <= 0 {
		return 0, errLarge
	}
	n, err = b.from.Read(p[:min(int64(len(p)), left)])
	b.read += int64(n)
	return n, err
}

// readAnswer decodes an answer into a [list] or a pointer to a small struct. It returns how the answer starts, for
// people, and the errors that it names.
func readAnswer(body io.Reader, into any) (start []byte, errs []said, err error) {
	const shown = 300
	buffered := bufio.NewReader(body)
	start, _ = buffered.Peek(shown)
	start = bytes.Clone(start) // the buffer is used again
	l, many := into.(*list)
	if !many {
		var failed struct{ Errors []said }
		data, err := io.ReadAll(io.LimitReader(buffered, maxValue))
		if err == nil {
			err = errors.Join(json.Unmarshal(data, &failed), json.Unmarshal(data, into))
		}
		return start, failed.Errors, err
	}
	b := &bounded{from: buffered}
	b.Decoder = json.NewDecoder(b)
	for err = b.delim('{'); err == nil && b.More(); {
		var key json.Token
		if key, err = b.Token(); err != nil {
			break
		}
		switch key {
		case l.key:
			err = b.list(l)
		case "errors":
			err = b.Decode(&errs)
		default:
			err = b.Decode(&json.RawMessage{})
		}
	}
	if err == nil {
		err = b.delim('}')
	}
	return start, errs, err
}

// list decodes a list; null is an empty one.
func (b *bounded) list(l *list) error {
	first, err := b.Token()
	switch {
	case err != nil || first == nil:
		return err
	case first != json.Delim('['):
		return fmt.Errorf("%s is no list", l.key)
	}
	for b.More() {
		if err := l.decode(b.Decoder); err != nil {
			return err
		}
	}
	return b.delim(']')
}

func (b *bounded) delim(want json.Delim) error {
	token, err := b.Token()
	if err == nil && token != want {
		err = fmt.Errorf("want %v, have %v", want, token)
	}
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
