package cli

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/document"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/spelling"
	"github.com/kubenergy/kubenergy/scenarios"
)

func newData(t cmdutil.Terminal) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "data",
		Short: "List and fetch the public data that scenarios and documents use",
		Long: `List and fetch the public data that scenarios and documents use. The data is not part of this
project. Each file is downloaded from its own repository at a fixed commit and has the licence of that repository.
Scenario files refer to the data by the environment variable KUBENERGY_DATA, which contains the directory.`,
		Example: `  kubenergy data list
  kubenergy data fetch gaia ensembleci --dir ~/kubenergy-data
  export KUBENERGY_DATA=~/kubenergy-data`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDataList(t, scenarios.Data()), newDataFetch(t, scenarios.Data()))
	return cmd
}

// dataDir adds the flag --dir. The returned function returns the directory, or "" if none is set.
func dataDir(cmd *cobra.Command, t cmdutil.Terminal) (folder func() string) {
	dir := cmd.Flags().String("dir", "", "directory of the data (default: $"+sim.DataVariable+")")
	return func() string { return cmp.Or(*dir, t.Getenv(sim.DataVariable)) }
}

// chooseData returns the files with the given set names or file names, or all files if names is empty.
func chooseData(all []scenarios.DataFile, names []string) ([]scenarios.DataFile, error) {
	if len(names) == 0 {
		return all, nil
	}
	known := append(setNames(all), sliceutil.Map(all, func(f scenarios.DataFile) string { return f.Name })...)
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("unknown data set or file %q%s: want one or more of %s", name,
				spelling.DidYouMean(name, known), strings.Join(setNames(all), ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(f scenarios.DataFile) bool {
		return !slices.Contains(names, f.Set()) && !slices.Contains(names, f.Name)
	}), nil
}

func setNames(files []scenarios.DataFile) []string {
	return slices.Compact(sliceutil.Map(files, func(f scenarios.DataFile) string { return f.Set() }))
}

// dataList is the output of data list.
type dataList struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Folder     string      `json:"folder,omitempty"`
	Files      []dataState `json:"files"`
}

type dataState struct {
	Set     string `json:"set"`
	File    string `json:"file"`
	Bytes   int64  `json:"bytes"`
	There   string `json:"there,omitempty"` // yes, no or another; empty if no directory is set
	Licence string `json:"licence"`
	SHA256  string `json:"sha256"`
	URL     string `json:"url"`
}

func newDataList(t cmdutil.Terminal, all []scenarios.DataFile) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [NAME...]",
		Short: "List the files of the data sets with size, checksum, origin, licence and local state",
		Example: `  kubenergy data list
  kubenergy data list gaia -o json`,
	}
	folder := dataDir(cmd, t)
	format := cmdutil.Output(cmd.Flags(), "table", "wide", "json", "csv")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		files, err := chooseData(all, args)
		if err != nil {
			return cmdutil.NewUsageError(err)
		}
		list := &dataList{APIVersion: document.APIVersion, Kind: "DataList", Folder: folder()}
		for _, f := range files {
			state := dataState{
				Set: f.Set(), File: f.Name, Bytes: f.Bytes, Licence: f.Licence, SHA256: f.SHA256, URL: f.URL,
			}
			if list.Folder != "" {
				if state.There, err = there(filepath.Join(list.Folder, filepath.FromSlash(f.Name)), &f); err != nil {
					return err
				}
			}
			list.Files = append(list.Files, state)
		}
		return t.Print(list, format.Value)
	}
	return cmd
}

// Sheet returns a table with one row per file.
func (l *dataList) Sheet() *report.Table {
	t := &report.Table{Columns: []report.Column{
		{Name: "file", Field: "file", Words: true},
		{Name: "size", Field: "bytes"},
		{Name: "there", Field: "there"},
		{Name: "licence", Field: "licence"},
		{Name: "origin", Field: "url", Wide: true},
		{Name: "sha256", Field: "sha256", Wide: true},
	}}
	licences := l.licences()
	for _, f := range l.Files {
		t.Add(f.File, report.Cell{Value: int(f.Bytes), Text: sizeText(f.Bytes)}, f.There,
			report.Cell{Value: f.Licence, Text: strconv.Itoa(1 + slices.Index(licences, f.Licence))}, f.URL, f.SHA256)
	}
	return t
}

// Text lists the files, followed by each licence.
func (l *dataList) Text(wide, colours bool) string {
	lines := []string{l.Sheet().Framed(wide, colours)}
	for i, licence := range l.licences() {
		lines = append(lines, fmt.Sprintf("licence %d: %s", 1+i, licence))
	}
	if l.Folder == "" {
		lines = append(lines, "No directory is set. Set "+sim.DataVariable+" or --dir to show the state of local "+
			"files.")
	}
	return strings.Join(lines, "\n") + "\n"
}

// licences returns the distinct licences. The table refers to them by number, because they are long.
func (l *dataList) licences() []string {
	return sliceutil.Distinct(sliceutil.Map(l.Files, func(f dataState) string { return f.Licence }))
}

// sizeText formats a number of bytes in kB or MB.
func sizeText(bytes int64) string {
	const kilo, mega = 1e3, 1e6
	if bytes < mega {
		return fmt.Sprintf("%.1f kB", float64(bytes)/kilo)
	}
	return fmt.Sprintf("%.1f MB", float64(bytes)/mega)
}

func newDataFetch(t cmdutil.Terminal, all []scenarios.DataFile) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "fetch [NAME...]",
		Short: "Download data sets or single files to a directory",
		Long: `Download data sets or single files to a directory. Without arguments, all files are downloaded.
Existing files with a matching SHA-256 checksum are not downloaded again, and interrupted downloads are resumed. A file
gets its final name only after it was downloaded completely and its checksum was verified. Files are not converted.`,
		Example: `  kubenergy data fetch gaia ensembleci --dir ~/kubenergy-data
  kubenergy data fetch electricity-maps/DE_2022.csv        # to the directory $KUBENERGY_DATA
  kubenergy data fetch --mirror https://mirror.example.org/raw`,
	}
	folder := dataDir(cmd, t)
	mirror := cmd.Flags().String("mirror", "", "URL of a mirror with the same paths as "+rawServer)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		files, err := chooseData(all, args)
		switch {
		case err != nil:
			return cmdutil.NewUsageError(err)
		case folder() == "":
			return cmdutil.UsageErrorf("missing directory: set --dir or the environment variable %s", sim.DataVariable)
		}
		dir, err := filepath.Abs(folder())
		if err != nil {
			return err
		}
		f := newFetcher(dir, *mirror)
		fetched, set := 0, ""
		for i := range files {
			if set != files[i].Set() {
				set = files[i].Set()
				fmt.Fprintf(t.Err, "%s: licence: %s\n", set, files[i].Licence)
			}
			isNew, err := f.fetch(cmd.Context(), &files[i], t.Err)
			if err != nil {
				return fmt.Errorf("downloading %s: %w", files[i].Name, err)
			}
			if isNew {
				fetched++
			}
		}
		fmt.Fprintf(t.Err, "Downloaded %s, %d already existed. To use them in scenarios, run\n  export %s=%s\n",
			humanize.Count(fetched, "file"), len(files)-fetched, sim.DataVariable, dir)
		return nil
	}
	return cmd
}
