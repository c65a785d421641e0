package report

import (
	"bytes"
	"fmt"
	"html/template"
	"strings"
)

// Manifest says what a comparison was made of, so that others can make it again.
type Manifest struct {
	APIVersion  string   `json:"apiVersion"`
	Kind        string   `json:"kind"`
	Program     string   `json:"program"` // its version
	Go          string   `json:"go"`
	Platform    string   `json:"platform"`
	CommandLine []string `json:"commandLine"`
	// of all trials' names and keys, and of how they are summed up
	Comparison string `json:"comparisonSHA256"`
	// by the file's path, as the comparison or its scenario gives it
	Inputs map[string]string `json:"inputsSHA256"`
	Seed   uint64            `json:"seed"`  // of the resamples
	Seeds  []uint64          `json:"seeds"` // of the trials
	Split  Split             `json:"parameterSplit"`
}

// Split says on which starts parameters may be chosen, and on which ones figures are quoted, by their indices from 0.
type Split struct {
	Quoted string `json:"quoted"`
	Starts []int  `json:"quotedStarts"`
	Others []int  `json:"otherStarts"`
}

// WriteSweepDir writes the comparison, its manifest, a page that shows it, and every figure as SVG and PNG into dir,
// and returns the paths.
func WriteSweepDir(dir string, s *Sweep, m *Manifest) (paths []string, err error) {
	files := map[string][]byte{}
	figures, err := s.figures()
	if err != nil {
		return nil, fmt.Errorf("drawing the comparison: %w", err)
	}
	page := sweepPage{
		Title: s.headline(), Notes: s.Notes, Command: strings.Join(m.CommandLine, " "), Program: m.Program,
	}
	for _, f := range figures {
		svg, err := f.svg()
		if err != nil {
			return nil, fmt.Errorf("drawing %s.svg: %w", f.name, err)
		}
		if files[f.name+".png"], err = f.png(); err != nil {
			return nil, fmt.Errorf("drawing %s.png: %w", f.name, err)
		}
		files[f.name+".svg"] = svg
		_, drawing, _ := bytes.Cut(svg, []byte("<svg"))
		//nolint:gosec // the drawing is our own, and its texts are escaped
		page.Figures = append(page.Figures, pageFigure{f.caption, template.HTML("<svg" + string(drawing))})
	}
	for _, t := range s.tables() {
		page.Tables = append(page.Tables, t.shown(true))
	}
	var html, summary, sheet, manifest bytes.Buffer
	if err := sweepTemplate.Execute(&html, &page); err != nil {
		return nil, fmt.Errorf("writing the page: %w", err)
	}
	if err := WriteJSON(&summary, s); err != nil {
		return nil, fmt.Errorf("writing the summary: %w", err)
	}
	if err := s.CSV(&sheet); err != nil {
		return nil, fmt.Errorf("writing the sheet: %w", err)
	}
	if err := WriteJSON(&manifest, m); err != nil {
		return nil, fmt.Errorf("writing the manifest: %w", err)
	}
	files["report.html"], files["comparison.json"], files["comparison.csv"] = html.Bytes(), summary.Bytes(),
		sheet.Bytes()
	files["manifest.json"] = manifest.Bytes()
	return replaceAll(dir, files)
}

type sweepPage struct {
	Title, Command, Program string
	Tables                  []*shown
	Figures                 []pageFigure
	Notes                   []string
}

type pageFigure struct {
	Caption string
	Drawing template.HTML
}

var sweepTemplate = template.Must(template.New("comparison").Parse(pageHead + `{{range .Tables}}{{$names := .Words -}}
<div class="scroll"><table>
{{if .Title}}<caption>{{.Title}}</caption>
{{end}}<thead><tr>{{range $i, $h := .Header}}
{{- ""}}<th scope="col"{{if lt $i $names}} class="name"{{end}}>{{$h}}</th>{{end}}</tr></thead>
<tbody>
{{range .Rows}}<tr>{{range $i, $c := .}}
{{- if lt $i $names}}<th scope="row" class="name">{{$c}}</th>{{else}}<td>{{$c}}</td>{{end}}{{end}}</tr>
{{end}}</tbody>
</table></div>
{{end}}
{{range .Figures}}<figure>{{.Drawing}}<figcaption>{{.Caption}}</figcaption></figure>
{{end}}
<h2>Notes</h2>
<ul>
{{range .Notes}}<li>{{.}}</li>
{{end}}</ul>
<p>Made by <code>{{.Command}}</code>, KubEnergy {{.Program}}.</p>
</body>
</html>
`))
