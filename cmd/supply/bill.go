package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/CycloneDX/cyclonedx-go"
)

// writeBill writes the bill of materials of a built program: what its own build
// information says, with the licences of each module, and nothing that changes from
// one run to the next.
func writeBill(out io.Writer, program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(program) // #nosec G703 -- a program that the user names
	if err != nil {
		return err
	}
	modules, err := linked(info.Path)
	if err != nil {
		return err
	}
	licences := map[string]module{}
	for _, m := range modules {
		licences[m.Path] = m
	}
	sum := sha256.Sum256(text)
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: ref(&info.Main), Type: cyclonedx.ComponentTypeApplication, Name: info.Main.Path, Version: info.Main.Version,
		Licenses: licensed([]string{"Apache-2.0"}),
		Hashes:   &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	}}
	components := []cyclonedx.Component{{
		BOMRef: "pkg:golang/std@" + info.GoVersion, Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion,
		PackageURL: "pkg:golang/std@" + info.GoVersion, Licenses: licensed([]string{"BSD-3-Clause"}),
	}}
	for _, d := range info.Deps {
		d = cmp.Or(d.Replace, d)
		m, known := licences[d.Path]
		if !known {
			return fmt.Errorf("%s links %s, which this working tree does not: build it anew", program, d.Path)
		}
		components = append(components, cyclonedx.Component{
			BOMRef: ref(d), Type: cyclonedx.ComponentTypeLibrary, Name: d.Path, Version: d.Version, PackageURL: ref(d), Licenses: licensed(m.Licences),
			Properties: &[]cyclonedx.Property{{Name: "go:sum", Value: d.Sum}},
		})
	}
	bom.Components = &components
	return cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// ref is a module's package URL.
func ref(m *debug.Module) string { return "pkg:golang/" + m.Path + "@" + m.Version }

func licensed(ids []string) *cyclonedx.Licenses {
	out := make(cyclonedx.Licenses, 0, len(ids))
	for _, id := range ids {
		out = append(out, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: id}})
	}
	return &out
}
