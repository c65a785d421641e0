package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/scenarios"
)

// content is the content of all served files. It is longer than one read.
var content = bytes.Repeat([]byte("2022-06-01T00:00Z,218.3\n"), 20_000)

func entry(name string, text []byte) scenarios.DataFile {
	sum := sha256.Sum256(text)
	return scenarios.DataFile{
		Name: name, Bytes: int64(len(text)), SHA256: hex.EncodeToString(sum[:]), URL: rawServer + "/" + name,
		Licence: "ours",
	}
}

// A dataServer serves the content with support for ranges, after a number of other responses.
type dataServer struct {
	*httptest.Server

	mu    sync.Mutex         // the client may continue before the handler returns
	first []http.HandlerFunc // initial responses
	all   []string           // requested ranges
}

// next records the request and returns its handler, or nil to serve the content.
func (s *dataServer) next(r *http.Request) (answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, r.Header.Get("Range"))
	if len(s.first) > 0 {
		answer, s.first = s.first[0], s.first[1:]
	}
	return answer
}

func (s *dataServer) ranges() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

func serveData(t *testing.T, first ...http.HandlerFunc) *dataServer {
	t.Helper()
	s := &dataServer{first: first}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer := s.next(r); answer != nil {
			answer(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	t.Cleanup(s.Close)
	return s
}

// fetcherOf returns a fetcher for a server with a short backoff.
func fetcherOf(t *testing.T, s *dataServer) *fetcher {
	t.Helper()
	f := newFetcher(t.TempDir(), s.URL+"/")
	f.pause = time.Millisecond
	return f
}

// breaksOff announces the whole content, but sends only a part of it.
func breaksOff(after int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content[:after])
	}
}

func answers(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", code) }
}

func silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// repeated returns the handler the given number of times.
func repeated(answer http.HandlerFunc, times int) (all []http.HandlerFunc) {
	for range times {
		all = append(all, answer)
	}
	return all
}

func TestFetchData(t *testing.T) {
	half := len(content) / 2
	for name, c := range map[string]struct {
		first  []http.HandlerFunc
		part   []byte // part of an earlier download
		ranges string // expected ranges of the requests
		err    string // expected error; empty if the download succeeds
		kept   int    // expected size of the remaining part
	}{
		"at once":                       {ranges: ""},
		"truncated response":            {first: repeated(breaksOff(half), 1), ranges: "|bytes=240000-"},
		"temporary failure":             {first: repeated(answers(http.StatusInternalServerError), 2), ranges: "||"},
		"interrupted download":          {part: content[:half], ranges: "bytes=240000-"},
		"complete part file":            {part: content, ranges: "none"},
		"part file too long":            {part: append(slices.Clip(content), 'x'), ranges: ""},
		"part of another file":          {part: bytes.Repeat([]byte("x"), half), ranges: "bytes=240000-|"},
		"complete part of another file": {part: bytes.Repeat([]byte("x"), len(content)), ranges: ""},
		"a server without ranges": {part: content[:half], ranges: "bytes=240000-", first: []http.HandlerFunc{
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) },
		}},
		"a server with another range": {part: content[:half], ranges: "bytes=240000-|", first: []http.HandlerFunc{
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Range", "bytes 0-479999/480000")
				w.WriteHeader(http.StatusPartialContent)
				_, _ = w.Write(content)
			},
		}},
		"not found": {
			first: repeated(answers(http.StatusNotFound), 1), ranges: "", err: "/set/file.csv returned 404 Not Found",
		},
		"not found when resumed": {
			part: content[:half], first: repeated(answers(http.StatusNotFound), 1), ranges: "bytes=240000-",
			err: "returned 404 Not Found: kept 240000 bytes, run the command again to resume", kept: half,
		},
		"permanent failure": {
			first: repeated(answers(http.StatusBadGateway), 9), ranges: "|||", err: "returned 502 Bad Gateway",
		},
		"always truncated": {
			first:  append(repeated(breaksOff(half), 1), repeated(answers(http.StatusServiceUnavailable), 9)...),
			ranges: "|bytes=240000-|bytes=240000-|bytes=240000-",
			err:    "returned 503 Service Unavailable: kept 240000 bytes", kept: half,
		},
		"another content": {ranges: "", err: "the SHA-256 checksum is ", first: []http.HandlerFunc{
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.ToLower(content)) },
		}},
		"too much": {ranges: "", err: "sent more than the expected 480000 bytes", first: []http.HandlerFunc{
			func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(append(slices.Clip(content), 'x'))
			},
		}},
		"silent server": {
			first: repeated(silent, 9), ranges: "|||", err: "no data received from the server for 50ms",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveData(t, c.first...)
			f := fetcherOf(t, s)
			if len(c.first) == 9 {
				f.timeout = 50 * time.Millisecond
			}
			file := entry("set/file.csv", content)
			path := filepath.Join(f.dir, "set", "file.csv")
			if c.part != nil {
				writeData(t, path+partSuffix, c.part)
			}
			fetched, err := f.fetch(t.Context(), &file, &bytes.Buffer{})
			if c.err == "" && (err != nil || !fetched) || c.err != "" && (err == nil || !strings.Contains(err.Error(),
				c.err)) {
				t.Errorf("fetched %v, got error %v, want %q", fetched, err, c.err)
			}
			if got := strings.Join(s.ranges(), "|"); got != c.ranges && (c.ranges != "none" || len(s.ranges()) > 0) {
				t.Errorf("got requests %q, want %q", got, c.ranges)
			}
			got, _ := os.ReadFile(path)
			if whole := bytes.Equal(got, content); whole != (c.err == "") || !whole && len(got) > 0 {
				t.Errorf("got %d bytes in the final file", len(got))
			}
			switch info, err := os.Stat(path + partSuffix); {
			case c.kept == 0 && err == nil:
				t.Errorf("unexpected remaining part of %d bytes", info.Size())
			case c.kept > 0 && (err != nil || info.Size() != int64(c.kept)):
				t.Errorf("expected a remaining part of %d bytes: %v", c.kept, err)
			}
		})
	}
}

func writeData(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A file with the expected checksum is not downloaded again, and a file with another checksum is replaced.
func TestFetchDataTwice(t *testing.T) {
	s := serveData(t)
	f := fetcherOf(t, s)
	file := entry("set/file.csv", content)
	path := filepath.Join(f.dir, "set", "file.csv")
	for i, want := range []bool{true, false, true} {
		if i == 2 {
			writeData(t, path, content[1:])
		}
		if fetched, err := f.fetch(t.Context(), &file, &bytes.Buffer{}); err != nil || fetched != want {
			t.Errorf("fetched %v, want %v, error %v", fetched, want, err)
		}
	}
	if len(s.ranges()) != 2 {
		t.Errorf("got %d requests, want 2", len(s.ranges()))
	}
}

// On a full disk, the error contains a hint, the existing part is kept, and the download is not retried.
func TestFetchDataOnAFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil || runtime.GOOS != "linux" {
		t.Skip("/dev/full does not exist")
	}
	s := serveData(t)
	f := fetcherOf(t, s)
	file := entry("file.csv", content)
	if err := os.Symlink("/dev/full", filepath.Join(f.dir, "file.csv"+partSuffix)); err != nil {
		t.Fatal(err)
	}
	_, err := f.fetch(t.Context(), &file, &bytes.Buffer{})
	if want := "no space left on device: free space in " + f.dir + " and run the command again"; err == nil ||
		!strings.Contains(err.Error(), want) || len(s.ranges()) != 1 {
		t.Errorf("got %d requests, error %v, want %q", len(s.ranges()), err, want)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "file.csv")); err == nil {
		t.Error("the file exists")
	}
}

// interrupting cancels the context after the first part of a body was written, on the next read.
type interrupting struct {
	http.RoundTripper
	cancel func()
}

func (i interrupting) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := i.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = &interruptedBody{ReadCloser: answer.Body, cancel: i.cancel}
	}
	return answer, err
}

type interruptedBody struct {
	io.ReadCloser
	cancel func()
	read   int
}

func (b *interruptedBody) Read(p []byte) (int, error) {
	if b.read == 1000 {
		b.cancel()
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), max(1, 1000-b.read))])
	b.read += n
	return n, err
}

// An interrupted command keeps the downloaded part.
func TestFetchDataInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := serveData(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content[:1000])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	f := fetcherOf(t, s)
	file := entry("file.csv", content)
	f.client.Transport = interrupting{f.client.Transport, cancel}
	if _, err := f.fetch(ctx, &file, &bytes.Buffer{}); err == nil ||
		!strings.Contains(err.Error(), "context canceled: kept 1000 bytes") {
		t.Errorf("unexpected error: %v", err)
	}
	if fetched, err := f.fetch(t.Context(), &file, &bytes.Buffer{}); err != nil || !fetched ||
		s.ranges()[1] != "bytes=1000-" {
		t.Errorf("fetched %v, requests %q, error %v", fetched, s.ranges(), err)
	}
}

// onData runs a command of "kubenergy data" with a manifest of two sets.
func onData(t *testing.T, env []string, args ...string) (out, messages string, err error) {
	t.Helper()
	all := []scenarios.DataFile{entry("one/a.csv", content), entry("one/b.csv", content), entry("two/c.csv", content)}
	var stdout, stderr bytes.Buffer
	term := cmdutil.Terminal{Name: "kubenergy", Env: env, Out: &stdout, Err: &stderr, Now: time.Now}
	cmd := newDataFetch(term, all)
	if args[0] == "list" {
		cmd = newDataList(term, all)
	}
	cmd.SetArgs(args[1:])
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func TestDataCommands(t *testing.T) {
	s, dir := serveData(t), t.TempDir()
	env := []string{"KUBENERGY_DATA=" + dir}
	if _, messages, err := onData(t, env, "fetch", "two", "one/b.csv", "--mirror", s.URL); err != nil ||
		!strings.Contains(messages, "one: licence: ours") || !strings.Contains(messages, "export KUBENERGY_DATA="+dir) ||
		!strings.Contains(messages, "Downloaded 2 files, 0 already existed") {
		t.Errorf("%v: %s", err, messages)
	}
	if _, messages, err := onData(t, env, "fetch", "--mirror", s.URL); err != nil ||
		!strings.Contains(messages, "Downloaded 1 file, 2 already existed") {
		t.Errorf("%v: %s", err, messages)
	}
	other := t.TempDir() // the flag takes precedence
	if _, messages, err := onData(t, env, "fetch", "two", "--dir", other, "--mirror", s.URL); err != nil ||
		!strings.Contains(messages, "export KUBENERGY_DATA="+other) {
		t.Errorf("%v: %s", err, messages)
	}
	var list dataList
	out, _, err := onData(t, nil, "list", "one", "two", "--dir", other, "-o", "json")
	if err != nil || json.Unmarshal([]byte(out), &list) != nil || len(list.Files) != 3 || list.Files[0].There != "no" ||
		list.Files[2].There != "yes" || list.Files[2].Bytes != int64(len(content)) {
		t.Errorf("%v: %s", err, out)
	}
	for format, want := range map[string]string{
		"table": "\nlicence 1: ours\n", "wide": rawServer + "/one/a.csv", "csv": "one/a.csv,480000,no,ours," + rawServer,
	} {
		if out, _, err := onData(t, nil, "list", "--dir", other, "-o", format); err != nil || !strings.Contains(out, want) {
			t.Errorf("error %v, output %s, want %q", err, out, want)
		}
	}
	for want, args := range map[string][]string{
		`unknown data set or file "ones" (did you mean one?): want one or more of one, two`: {"fetch", "ones", "--dir", dir},
		"missing directory: set --dir or the environment variable KUBENERGY_DATA":           {"fetch", "two"},
	} {
		if _, _, err := onData(t, nil, args...); err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
	if out, _, _ := onData(t, nil, "list", "--dir", other, "-o", "wide"); strings.Count(out, "ours") != 1 {
		t.Errorf("duplicate licence:\n%s", out)
	}
	// The command line uses the manifest of the program.
	if code, stdout, stderr := ranLocally([]string{"data", "list"}); code != 0 || stderr != "" ||
		!strings.Contains(stdout, "gaia/pai_1k.csv") || !strings.Contains(stdout, "No directory is set") {
		t.Errorf("exit code %d: %s%s", code, stderr, stdout)
	}
}
