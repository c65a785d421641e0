package main

import (
	"cmp"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/kubenergy/kubenergy/scheduler/record"
)

// endpoint says where the central unit is, and with what to ask it.
type endpoint struct{ url, tokenFile, caFile string }

// noRecords is the URL of who wants none although the central unit is known.
const noRecords = "none"

func (e *endpoint) addRecordFlags(fs *pflag.FlagSet) {
	fs.StringVar(&e.url, "kubenergy-record-url", e.url, "`URL` of the central unit that decisions are told to, with "+
		"what they depended on (default: that of live watts; \"none\": nobody is told)")
	fs.StringVar(&e.tokenFile, "kubenergy-record-token-file", e.tokenFile,
		"`file` with the token for it (default: as for live watts)")
	fs.StringVar(&e.caFile, "kubenergy-record-ca-file", e.caFile,
		"`file` with certificates to trust for it (default: as for live watts)")
}

// recorder returns what decisions are told to; nil if to nobody. What is not said is as for live watts.
func (e *endpoint) recorder(live endpoint, log *slog.Logger) (*record.Recorder, error) {
	o := record.Options{URL: cmp.Or(e.url, live.url), TokenFile: e.tokenFile, CAFile: e.caFile, Log: log}
	if o.URL == "" || o.URL == noRecords {
		return nil, nil
	}
	if e.url == "" || e.url == live.url {
		o.TokenFile, o.CAFile = cmp.Or(o.TokenFile, live.tokenFile), cmp.Or(o.CAFile, live.caFile)
	}
	return record.New(o)
}
