/* Cutting an NDJSON file into documents: line ends, empty lines, what is refused. */
#include "support/proves.h"

#include <stdio.h>
#include <string.h>

#include "cli/load_file.h"
#include "support/tempdir.h"

static char dir[SF_TEMPDIR_BYTES];
static char path[SF_TEMPDIR_BYTES + 16];

static int set_up(void **state)
{
    (void)state;
    sf_tempdir_make(dir);
    (void)snprintf(path, sizeof(path), "%s/docs.ndjson", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sf_tempdir_remove(dir);
    return 0;
}

static void write_file(const char *bytes, size_t len)
{
    FILE *file = fopen(path, "wbe");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

/* Opens a file of `text`; checks that its documents are `docs` (NULL-terminated). */
static void expect_docs(const char *text, const char *const *docs)
{
    struct sf_load_file file;
    struct sf_diag diag;
    size_t count = 0;

    write_file(text, strlen(text));
    sf_diag_init(&diag);
    assert_int_equal(sf_load_file_open(path, &diag, &file), SF_OK);
    for (; docs[count] != NULL; count++) {
        assert_true(count < file.doc_count);
        assert_true(sf_view_equal(file.docs[count], sf_view_str(docs[count])));
    }
    assert_int_equal(file.doc_count, count);
    sf_load_file_close(&file);
    sf_load_file_close(&file); /* twice is fine */
}

static void test_line_ends(void **state)
{
    (void)state;
    expect_docs("{\"a\":1}\n{\"b\":2}\n", (const char *const[]){"{\"a\":1}", "{\"b\":2}", NULL});
    /* the last line needs no end */
    expect_docs("{\"a\":1}\n{\"b\":2}", (const char *const[]){"{\"a\":1}", "{\"b\":2}", NULL});
    /* carriage returns belong to the line end, and only there */
    expect_docs("{\"a\":1}\r\n{\"b\"\r:2}\r\n",
                (const char *const[]){"{\"a\":1}", "{\"b\"\r:2}", NULL});
    /* trailing blanks are the document's own bytes */
    expect_docs("{\"a\":1} \t\n", (const char *const[]){"{\"a\":1} \t", NULL});
}

static void test_empty_lines_do_not_count(void **state)
{
    (void)state;
    expect_docs("", (const char *const[]){NULL});
    expect_docs("\n\r\n\n", (const char *const[]){NULL});
    expect_docs("\n{\"a\":1}\n\n\r\n{\"b\":2}\n\n",
                (const char *const[]){"{\"a\":1}", "{\"b\":2}", NULL});
}

static void test_many_documents(void **state)
{
    struct sf_load_file file;
    struct sf_diag diag;
    FILE *out = fopen(path, "wbe");

    (void)state;
    assert_non_null(out);
    for (int i = 0; i < 3000; i++) /* past two growths of the array */
        assert_true(fprintf(out, "{\"n\":%d}\n", i) > 0);
    assert_int_equal(fclose(out), 0);
    sf_diag_init(&diag);
    assert_int_equal(sf_load_file_open(path, &diag, &file), SF_OK);
    assert_int_equal(file.doc_count, 3000);
    assert_true(sf_view_equal(file.docs[0], sf_view_str("{\"n\":0}")));
    assert_true(sf_view_equal(file.docs[1024], sf_view_str("{\"n\":1024}")));
    assert_true(sf_view_equal(file.docs[2999], sf_view_str("{\"n\":2999}")));
    sf_load_file_close(&file);
}

/* The refusal of a file of `text` names the line. */
static void expect_refused(const char *text, const char *line)
{
    struct sf_load_file file;
    struct sf_diag diag;

    write_file(text, strlen(text));
    sf_diag_init(&diag);
    assert_int_equal(sf_load_file_open(path, &diag, &file), SF_ERR_PARSE);
    assert_non_null(strstr(diag.message, line));
    assert_null(file.map);
    assert_null(file.docs);
    sf_load_file_close(&file);
}

static void test_lines_that_are_no_object(void **state)
{
    (void)state;
    expect_refused("{\"a\":1}\n\n[1]\n", ":3:");
    expect_refused("x", ":1:");
    expect_refused(" {\"a\":1}\n", ":1:");
}

static void test_file_that_is_not_there(void **state)
{
    struct sf_load_file file;
    struct sf_diag diag;

    (void)state;
    sf_diag_init(&diag);
    assert_int_equal(sf_load_file_open("/nonexistent/docs.ndjson", &diag, &file), SF_ERR_IO);
    assert_non_null(strstr(diag.message, "/nonexistent/docs.ndjson"));
    sf_load_file_close(&file);
}

/* A folder can be opened and has a size, but is no file of documents. */
static void test_folder(void **state)
{
    struct sf_load_file file;
    struct sf_diag diag;

    (void)state;
    sf_diag_init(&diag);
    assert_int_equal(sf_load_file_open(dir, &diag, &file), SF_ERR_IO);
    sf_load_file_close(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line_ends),
        cmocka_unit_test(test_empty_lines_do_not_count),
        cmocka_unit_test(test_many_documents),
        cmocka_unit_test(test_lines_that_are_no_object),
        cmocka_unit_test(test_file_that_is_not_there),
        cmocka_unit_test(test_folder),
    };
    return SF_RUN_TESTS_WITH("load_file", tests, set_up, tear_down);
}
