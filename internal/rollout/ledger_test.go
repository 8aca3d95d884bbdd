package rollout

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func drawEntry(t *rapid.T) Entry {
	number := rapid.IntRange(0, maxReplicas)
	revisions := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9]{0,10}`), 1, 4, rapid.ID[string]).Draw(t, "revisions")
	return Entry{
		Seq: rapid.Int64Range(1, 1<<62).Draw(t, "seq"), Seen: rapid.Int64Range(0, 1<<62).Draw(t, "seen"), Revisions: revisions,
		Command: Command{
			Replicas: number.Draw(t, "replicas"), Surge: number.Draw(t, "surge"), Unavailable: number.Draw(t, "unavailable"),
			Partition: number.Draw(t, "partition"), Paused: rapid.Bool().Draw(t, "paused"), Revision: rapid.SampledFrom(revisions).Draw(t, "revision"),
		},
		Loosened: Envelope{Pods: number.Draw(t, "pods"), Available: number.Draw(t, "available"), Updated: number.Draw(t, "updated")},
	}
}

// TestLedgerSurvivesEncoding encodes and decodes any ledger.
func TestLedgerSurvivesEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ledger := Ledger(rapid.MapOfN(rapid.StringMatching(`[a-z][a-z0-9-]{0,20}`), rapid.Custom(drawEntry), 0, 5).Draw(t, "ledger"))
		text, err := ledger.Encode()
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := DecodeLedger(text)
		if err != nil || !reflect.DeepEqual(decoded, ledger) {
			t.Fatalf("%s\ndecoded as %+v, %v\nwas %+v", text, decoded, err, ledger)
		}
	})
}

// TestLedgerIsSmall checks that the ledger of 500 clusters fits into an annotation many times.
func TestLedgerIsSmall(t *testing.T) {
	ledger := Ledger{}
	for i := range 500 {
		ledger[fmt.Sprintf("member-%03d", i)] = Entry{
			Seq: 123, Seen: 123456789, Command: Command{Replicas: 20, Surge: 1, Revision: "6d4cf56db6"}, Revisions: []string{"5c689d88bb", "6d4cf56db6"},
			Loosened: Envelope{Pods: 21, Available: 20, Updated: 20},
		}
	}
	text, err := ledger.Encode()
	if err != nil || len(text) > 32<<10 {
		t.Errorf("it has %d bytes: %v", len(text), err)
	}
}

// TestDecodeLedgerErrors checks what is said about bad input.
func TestDecodeLedgerErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                       "unexpected EOF",
		`[]`:                      "cannot unmarshal",
		`{"v":1}{}`:               "more after its end",
		`{"v":1,"x":1}`:           `unknown field "x"`,
		`{"v":2}`:                 "its version is 2, and this program knows 1",
		`{}`:                      "its version is 0",
		`{"v":1,"c":{"m":[1,2]}}`: "cluster m: it has 2 numbers and needs more than 11",
		`{"v":1,"r":["a"],"c":{"m":[1,0,3,1,0,0,0,4,3,3,0]}}`:            "cluster m: it has 11 numbers",
		`{"v":1,"r":["a"],"c":{"m":[1,0,3,1,0,0,0,4,3,3,1,0]}}`:          "revision number 1 does not exist",
		`{"v":1,"r":["a"],"c":{"m":[0,0,3,1,0,0,0,4,3,3,0,0]}}`:          "its command has the number 0",
		`{"v":1,"r":["a"],"c":{"m":[1,-1,3,1,0,0,0,4,3,3,0,0]}}`:         "the version -1 is negative",
		`{"v":1,"r":["a"],"c":{"m":[1,0,-3,1,0,0,0,4,3,3,0,0]}}`:         "the number -3 is out of range",
		`{"v":1,"r":["a"],"c":{"m":[1,0,3,1,0,0,2,4,3,3,0,0]}}`:          "paused is 2",
		`{"v":1,"r":["a"],"c":{"m":[1,0,2147483648,1,0,0,0,4,3,3,0,0]}}`: "the number 2147483648 is out of range",
		`{"v":1,"r":["a","b"],"c":{"m":[1,0,3,1,0,0,0,4,3,3,0,1]}}`:      `its revision "a" is not among`,
	} {
		if ledger, err := DecodeLedger(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want an error with %q", text, ledger, err, want)
		}
	}
	if ledger, err := DecodeLedger(""); err != nil || len(ledger) != 0 {
		t.Errorf("an empty text is %v, %v", ledger, err)
	}
}

// FuzzDecodeLedger checks that whatever can be decoded can be encoded again.
func FuzzDecodeLedger(f *testing.F) {
	f.Add(`{"v":1,"r":["a","b"],"c":{"m":[7,9,3,1,0,0,1,4,2,3,1,0,1]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		ledger, err := DecodeLedger(text)
		if err != nil {
			return
		}
		again, err := ledger.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if decoded, err := DecodeLedger(again); err != nil || !reflect.DeepEqual(decoded, ledger) {
			t.Fatalf("%s became %s: %v", text, again, err)
		}
	})
}
