package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/scenarios"
)

// rawServer is the server of GitHub that serves single files of a commit.
const rawServer = "https://raw.githubusercontent.com"

// partSuffix is the suffix of incomplete files.
const partSuffix = ".part"

// States of a local file.
const (
	thereYes     = "yes"
	thereNo      = "no"
	thereAnother = "another" // the checksum does not match the manifest
)

// there returns the state of the local copy of a file.
func there(path string, file *scenarios.DataFile) (string, error) {
	sum, err := checksum(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return thereNo, nil
	case err != nil:
		return "", err
	case sum != file.SHA256:
		return thereAnother, nil
	}
	return thereYes, nil
}

// checksum returns the SHA-256 checksum of a file in hexadecimal.
func checksum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// fetcher downloads files of the manifest to a directory.
type fetcher struct {
	dir, mirror string
	client      *http.Client
	attempts    int
	pause       time.Duration // initial backoff, doubled after each attempt
	timeout     time.Duration // maximum time without receiving data
}

func newFetcher(dir, mirror string) *fetcher {
	// Compression is disabled, because sizes and offsets refer to the stored file.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true
	return &fetcher{
		dir: dir, mirror: strings.TrimSuffix(mirror, "/"), client: &http.Client{Transport: transport}, attempts: 4,
		pause: time.Second, timeout: time.Minute,
	}
}

// lasting wraps errors of servers that a retry would not resolve.
type lasting struct{ error }

func (e lasting) Unwrap() error { return e.error }

// fetch downloads a file unless a valid copy exists. It reports whether the file was downloaded.
func (f *fetcher) fetch(ctx context.Context, file *scenarios.DataFile, say io.Writer) (fetched bool, err error) {
	path := filepath.Join(f.dir, filepath.FromSlash(file.Name))
	state, err := there(path, file)
	switch {
	case err != nil:
		return false, err
	case state == thereYes:
		fmt.Fprintf(say, "%s already exists\n", file.Name)
		return false, nil
	case state == thereAnother:
		fmt.Fprintf(say, "%s exists with a different checksum, replacing it\n", file.Name)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	fmt.Fprintf(say, "Downloading %s, %s\n", file.Name, sizeText(file.Bytes))
	pause := f.pause
	for attempt := 1; ; attempt++ {
		err := f.attempt(ctx, file, path+partSuffix)
		if err == nil {
			return true, os.Rename(path+partSuffix, path)
		}
		_, last := errors.AsType[lasting](err)
		_, local := errors.AsType[*fs.PathError](err)
		if last || local || attempt == f.attempts || ctx.Err() != nil {
			return false, f.giveUp(err, path+partSuffix)
		}
		fmt.Fprintf(say, "%s: %v, retrying\n", file.Name, err)
		kube.Pause(ctx, pause)
		pause *= 2
	}
}

// giveUp keeps the downloaded part for the next invocation and adds a hint to the error.
func (f *fetcher) giveUp(err error, part string) error {
	info, missing := os.Stat(part)
	kept := missing == nil && info.Size() > 0
	if missing == nil && !kept {
		_ = os.Remove(part) // an empty file is useless
	}
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: free space in %s and run the command again to resume", err, f.dir)
	case kept:
		return fmt.Errorf("%w: kept %d bytes, run the command again to resume", err, info.Size())
	}
	return err
}

// attempt downloads the missing part of a file and verifies the checksum of the whole file.
func (f *fetcher) attempt(ctx context.Context, file *scenarios.DataFile, part string) (err error) {
	//nolint:gosec // readable by all users of the directory
	out, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, out.Close()) }()
	info, err := out.Stat()
	if err != nil {
		return err
	}
	have := info.Size()
	if have > file.Bytes {
		have, err = 0, out.Truncate(0)
	}
	if err == nil && have < file.Bytes {
		err = f.download(ctx, file, out, have)
	}
	if err != nil {
		return err
	}
	sum, err := checksum(part)
	switch {
	case err != nil:
		return err
	case sum == file.SHA256:
		return out.Sync()
	}
	err = cmp.Or(out.Truncate(0), fmt.Errorf("the SHA-256 checksum is %s: want %s, the file was discarded", sum,
		file.SHA256))
	if have > 0 {
		return err // retry, because the existing part may have been of another file
	}
	return lasting{err}
}

// download requests the file from offset have on and appends the response to the part.
func (f *fetcher) download(ctx context.Context, file *scenarios.DataFile, out *os.File, have int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	url := file.URL
	if rest, ok := strings.CutPrefix(url, rawServer); ok && f.mirror != "" {
		url = f.mirror + rest
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return lasting{err}
	}
	if have > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
	}
	alarm := watchdog{time.AfterFunc(f.timeout, func() {
		cancel(fmt.Errorf("no data received from the server for %v", f.timeout))
	}), f.timeout}
	defer alarm.Stop()
	answer, err := f.client.Do(request)
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	defer answer.Body.Close()
	switch code := answer.StatusCode; {
	case code == http.StatusPartialContent && have > 0 && strings.HasPrefix(answer.Header.Get("Content-Range"),
		fmt.Sprintf("bytes %d-", have)):
	case code == http.StatusOK: // the response contains the whole file
		_, have = out.Truncate(0), 0 // if it fails, the checksum does not match
	case code == http.StatusPartialContent || code == http.StatusRequestedRangeNotSatisfiable:
		return errors.Join(fmt.Errorf("%s cannot resume at byte %d", url, have), out.Truncate(0))
	case code >= 500 || code == http.StatusTooManyRequests:
		return fmt.Errorf("%s returned %s", url, answer.Status)
	default:
		return lasting{fmt.Errorf("%s returned %s", url, answer.Status)}
	}
	return receive(ctx, file, answer.Body, out, have, alarm)
}

// receive appends the response body to the part and restarts the alarm whenever it receives data.
func receive(ctx context.Context, file *scenarios.DataFile, body io.Reader, out *os.File, have int64, alarm watchdog,
) error {
	n, err := io.Copy(io.MultiWriter(out, alarm), io.LimitReader(body, file.Bytes-have+1))
	switch have += n; {
	case have > file.Bytes:
		return lasting{cmp.Or(out.Truncate(0), fmt.Errorf("the server sent more than the expected %d bytes, the file "+
			"was discarded", file.Bytes))}
	case err == nil && have == file.Bytes:
		return nil
	case context.Cause(ctx) != nil:
		return context.Cause(ctx)
	case err == nil, errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the response ended at byte %d of %d", have, file.Bytes)
	}
	return err
}

// watchdog is a writer that restarts its timer on each write.
type watchdog struct {
	*time.Timer
	timeout time.Duration
}

// Write implements io.Writer.
func (w watchdog) Write(data []byte) (int, error) {
	w.Reset(w.timeout)
	return len(data), nil
}
