package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestSBOM(t *testing.T) {
	b := built1(t)
	for _, done := range b.images {
		content, err := os.ReadFile(filepath.Join(filepath.Dir(string(b.path)), documentName(b.program, done.platform)))
		if err != nil {
			t.Fatal(err)
		}
		var doc spdxDocument
		if err := json.Unmarshal(content, &doc); err != nil {
			t.Fatal(err)
		}
		if doc.SPDXVersion != "SPDX-2.3" || doc.DataLicense != "CC0-1.0" || doc.SPDXID != "SPDXRef-DOCUMENT" || doc.Name == "" ||
			!strings.HasSuffix(doc.DocumentNamespace, "/tiny/sha256-"+done.digest.Hex) || len(doc.CreationInfo.Creators) == 0 {
			t.Errorf("%s: a required field of the document is missing: %+v", done.platform, doc)
		}
		if _, err := time.Parse("2006-01-02T15:04:05Z", doc.CreationInfo.Created); err != nil {
			t.Errorf("%s: %v", done.platform, err)
		}
		checkPackages(t, &doc)
	}
}

// checkPackages checks the required fields of packages, and that the program depends on all others.
func checkPackages(t *testing.T, doc *spdxDocument) {
	t.Helper()
	id := regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`)
	relations := map[string]string{}
	for _, relation := range doc.Relationships {
		relations[relation.Related] = relation.Element + " " + relation.Type
	}
	found := map[string]spdxPackage{}
	ids := map[string]bool{}
	for _, p := range doc.Packages {
		found[p.Name] = p
		if !id.MatchString(p.SPDXID) || ids[p.SPDXID] || p.DownloadLocation == "" || p.LicenseConcluded == "" || p.LicenseDeclared == "" || p.CopyrightText == "" || p.FilesAnalyzed {
			t.Errorf("the package %+v lacks something, or its ID is not unique", p)
		}
		ids[p.SPDXID] = true
		want := "SPDXRef-program DEPENDS_ON"
		if p.SPDXID == spdxProgramID {
			want = "SPDXRef-DOCUMENT DESCRIBES"
		}
		if relations[p.SPDXID] != want {
			t.Errorf("%s: %q, want %q", p.Name, relations[p.SPDXID], want)
		}
	}
	if p := found["example.com/tiny"]; p.VersionInfo != "v1.2.3" || p.DownloadLocation != "git+https://example.com/tiny@0123abc" || p.LicenseDeclared != "MIT" {
		t.Errorf("the program is %+v", p)
	}
	mod := found["golang.org/x/mod"]
	if mod.VersionInfo != "v0.42.0" || mod.DownloadLocation != noAssertion || !strings.HasPrefix(mod.SourceInfo, "go.sum h1:") {
		t.Errorf("the dependency is %+v", mod)
	}
	if len(mod.ExternalRefs) != 1 || mod.ExternalRefs[0].Locator != "pkg:golang/golang.org/x/mod@v0.42.0" {
		t.Errorf("the dependency has the references %+v", mod.ExternalRefs)
	}
	if found["stdlib"].VersionInfo == "" || found[rootsModule].VersionInfo == "" {
		t.Error("the standard library or the certificates are missing")
	}
	if len(doc.Packages) != 4 {
		t.Errorf("there are %d packages, want 4", len(doc.Packages))
	}
}

func TestPackageURL(t *testing.T) {
	if got, want := packageURL("github.com/Microsoft/go-winio", "v1.0.0+incompatible"), "pkg:golang/github.com/microsoft/go-winio@v1.0.0%2Bincompatible"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
