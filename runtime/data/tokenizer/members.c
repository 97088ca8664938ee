/* SPDX-License-Identifier: MIT
 *
 * See members.h.
 */
#include "runtime/data/tokenizer/members.h"

#include <string.h>

#include "runtime/io/utf8.h"

HsStatus hs_members_present(const char *where, const HsJson *node, bool *present)
{
    *present = node && !hs_json_is_null(node);
    if (*present && !hs_json_is_object(node))
        return hs_fail(HS_EFORMAT, "%s must be an object or null", where);
    return HS_OK;
}

HsStatus hs_members_type(const char *where, const HsJson *node, const char **type)
{
    *type = hs_json_string(hs_json_get(node, "type"));
    if (!*type)
        return hs_fail(HS_EFORMAT, "%s: member `type` is missing", where);
    return HS_OK;
}

HsStatus hs_members_known(const char *where, const HsJson *node, const char *known)
{
    for (const HsJson *item = hs_json_first(node); item; item = hs_json_next(item)) {
        const char *key = hs_json_key(item), *at = known;
        size_t length = strlen(key);
        while (*at && !(strncmp(at, key, length) == 0 && at[length] == ' '))
            at = strchr(at, ' ') + 1;
        if (!*at || length == 0 || strchr(key, ' '))
            return hs_fail(HS_EUNSUPPORTED, "%s: member `%.60s` is not supported", where, key);
        if (hs_json_get(node, key) != item)
            return hs_fail(HS_EFORMAT, "%s: member `%s` is there twice", where, key);
    }
    return HS_OK;
}

HsStatus hs_member_flag(const char *where, const HsJson *node, const char *key, bool absent, bool *value)
{
    const HsJson *member = hs_json_get(node, key);
    *value = member ? hs_json_is_true(member) : absent;
    if (member && !hs_json_is_bool(member))
        return hs_fail(HS_EFORMAT, "%s: member `%s` must be true or false", where, key);
    return HS_OK;
}

HsStatus hs_member_character(const char *where, const HsJson *node, const char *key, const char **value)
{
    *value = hs_json_string(hs_json_get(node, key));
    size_t length = *value ? strlen(*value) : 0;
    if (length == 0 || hs_utf8_decode(*value, length, NULL) != length)
        return hs_fail(HS_EFORMAT, "%s: member `%s` must be one character", where, key);
    return HS_OK;
}

HsStatus hs_member_count(const char *where, const HsJson *node, const char *key, int64_t *value)
{
    HS_TRY(hs_json_need_integer(where, node, key, value));
    if (*value < 0)
        return hs_fail(HS_EFORMAT, "%s: member `%s` must not be negative", where, key);
    return HS_OK;
}

HsStatus hs_member_list(const char *where, const HsJson *node, const char *key, const HsJson **list)
{
    *list = hs_json_get(node, key);
    if (!hs_json_is_array(*list))
        return hs_fail(HS_EFORMAT, "%s: member `%s` must be a list", where, key);
    return HS_OK;
}

HsStatus hs_member_scheme(const char *where, const HsJson *node, HsPrefix *prefix)
{
    static const char *const names[] = { "never", "first", "always" };
    const HsJson *member = hs_json_get(node, "prepend_scheme");
    const char *scheme = hs_json_string(member);
    bool older = true;
    if (!hs_json_is_null(hs_json_get(node, "add_prefix_space")))
        HS_TRY(hs_member_flag(where, node, "add_prefix_space", true, &older));
    *prefix = older ? HS_PREFIX_ALWAYS : HS_PREFIX_NEVER;
    if (!member)
        return HS_OK;
    for (int i = 0; scheme && i <= HS_PREFIX_ALWAYS; i++) {
        if (strcmp(names[i], scheme) != 0)
            continue;
        if (!older && i != HS_PREFIX_NEVER)
            return hs_fail(HS_EFORMAT,
                           "%s: add_prefix_space is false, so prepend_scheme must be never or left out, but is %s",
                           where, scheme);
        *prefix = (HsPrefix)i;
        return HS_OK;
    }
    return hs_fail(HS_EFORMAT, "%s: member `prepend_scheme` must be always, first or never", where);
}
