package extract_test

import (
	"context"
	"fmt"
	"net/url"

	"github.com/waggle-crawl/waggle/collector/web/extract"
)

func ExampleFind() {
	base, err := url.Parse("https://example.com/news/")
	if err != nil {
		fmt.Println(err)
		return
	}
	page := []byte(`
		<link rel="next" href="?page=2">
		<a href="1.html#comments">One</a> <a href="1.html">again</a>
		<a href="tel:+15551234">Call</a>
		<img src="logo.png">`)
	found, err := extract.Find(context.Background(), extract.Document{URL: base, ContentType: "text/html", Body: page}, extract.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, link := range found.Links {
		fmt.Println(link.URL)
	}
	fmt.Println("skipped:", found.Skipped)
	// Output:
	// https://example.com/news/?page=2
	// https://example.com/news/1.html
	// skipped: 1
}
