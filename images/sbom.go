package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// spdxType is the media type of SPDX documents in JSON.
const spdxType = "application/spdx+json"

// spdxDocument is the part of SPDX 2.3 that is used here. The names of the fields are those of the specification.
type spdxDocument struct {
	SPDXVersion       string             `json:"spdxVersion"`
	DataLicense       string             `json:"dataLicense"`
	SPDXID            string             `json:"SPDXID"`
	Name              string             `json:"name"`
	DocumentNamespace string             `json:"documentNamespace"`
	CreationInfo      spdxCreation       `json:"creationInfo"`
	Packages          []spdxPackage      `json:"packages"`
	Relationships     []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	SPDXID           string         `json:"SPDXID"`
	Name             string         `json:"name"`
	VersionInfo      string         `json:"versionInfo,omitempty"`
	Purpose          string         `json:"primaryPackagePurpose,omitempty"`
	DownloadLocation string         `json:"downloadLocation"`
	FilesAnalyzed    bool           `json:"filesAnalyzed"`
	SourceInfo       string         `json:"sourceInfo,omitempty"`
	LicenseConcluded string         `json:"licenseConcluded"`
	LicenseDeclared  string         `json:"licenseDeclared"`
	CopyrightText    string         `json:"copyrightText"`
	ExternalRefs     []spdxExternal `json:"externalRefs,omitempty"`
}

type spdxExternal struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

const (
	spdxDocumentID = "SPDXRef-DOCUMENT"
	spdxProgramID  = "SPDXRef-program"
	noAssertion    = "NOASSERTION"
)

// newSBOM lists the modules of a compiled program, as the Go tool recorded them in it. The digest of the image makes the
// document's namespace unique.
func newSBOM(p *program, platform v1.Platform, binary string, image v1.Hash, created time.Time) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("reading the modules of %s: %w", p.name, err)
	}
	doc := &spdxDocument{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: spdxDocumentID,
		Name:              fmt.Sprintf("%s %s for %s", p.name, p.version, platform),
		DocumentNamespace: fmt.Sprintf("%s/sbom/%s/%s-%s", repositoryURL, p.name, image.Algorithm, image.Hex),
		CreationInfo:      spdxCreation{Created: created.Format(time.RFC3339), Creators: []string{"Tool: cellplane-images", "Organization: Cellplane"}},
	}
	main := newPackage(spdxProgramID, info.Main.Path, p.version, info.Main.Sum)
	main.Purpose, main.LicenseDeclared = "APPLICATION", p.licenses
	if info.Main.Version == "(devel)" { // built from the source tree
		main.DownloadLocation = noAssertion
		if p.revision != "" {
			main.DownloadLocation = "git+" + p.source + "@" + p.revision
		}
	}
	doc.Packages = append(doc.Packages, main)
	doc.relate(spdxDocumentID, "DESCRIBES", spdxProgramID)

	goVersion := strings.TrimPrefix(strings.Fields(info.GoVersion)[0], "go")
	stdlib := newPackage("SPDXRef-stdlib", "stdlib", goVersion, "")
	stdlib.DownloadLocation = "https://go.dev/dl/go" + goVersion + ".src.tar.gz"
	stdlib.LicenseDeclared = "BSD-3-Clause"
	doc.depend(stdlib)
	for i, dep := range sortedModules(info.Deps) {
		doc.depend(newPackage(fmt.Sprintf("SPDXRef-module-%d", i+1), dep.Path, dep.Version, dep.Sum))
	}
	if p.roots {
		roots, err := rootsVersion()
		if err != nil {
			return nil, err
		}
		certificates := newPackage("SPDXRef-certificates", roots.Path, roots.Version, roots.Sum)
		certificates.Purpose = "DATA"
		doc.depend(certificates)
	}
	return json.MarshalIndent(doc, "", "  ")
}

func (d *spdxDocument) relate(element, relation, related string) {
	d.Relationships = append(d.Relationships, spdxRelationship{Element: element, Type: relation, Related: related})
}

func (d *spdxDocument) depend(p spdxPackage) {
	if p.Purpose == "" {
		p.Purpose = "LIBRARY"
	}
	d.Packages = append(d.Packages, p)
	d.relate(spdxProgramID, "DEPENDS_ON", p.SPDXID)
}

// newPackage describes a module. Its purl tells what it is: where it was downloaded is a setting of the machine that has built. Its checksum is that
// of go.sum, which is not the hash of a file.
func newPackage(id, path, version, sum string) spdxPackage {
	p := spdxPackage{
		SPDXID: id, Name: path, VersionInfo: version, DownloadLocation: noAssertion,
		LicenseConcluded: noAssertion, LicenseDeclared: noAssertion, CopyrightText: noAssertion,
		ExternalRefs: []spdxExternal{{Category: "PACKAGE-MANAGER", Type: "purl", Locator: packageURL(path, version)}},
	}
	if sum != "" {
		p.SourceInfo = "go.sum " + sum
	}
	return p
}

// packageURL returns the package URL (purl) of a module. A + in a version has to be escaped.
func packageURL(path, version string) string {
	return "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// sortedModules returns modules with their replacements applied.
func sortedModules(deps []*debug.Module) []*debug.Module {
	modules := make([]*debug.Module, len(deps))
	for i, dep := range deps {
		if modules[i] = dep; dep.Replace != nil {
			modules[i] = dep.Replace
		}
	}
	slices.SortFunc(modules, func(a, b *debug.Module) int { return cmp.Compare(a.Path, b.Path) })
	return modules
}

// rootsVersion returns the module of the certificates that is built into this command.
func rootsVersion() (*debug.Module, error) {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, dep := range info.Deps {
			if dep.Path == rootsModule {
				return dep, nil
			}
		}
	}
	return nil, fmt.Errorf("this command has no record of the version of %s; build it with `make images`", rootsModule)
}
